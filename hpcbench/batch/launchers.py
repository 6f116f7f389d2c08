"""What starts the ranks inside a job: from a shape to an argument list, one function a dialect."""

from collections.abc import Callable, Iterable

from hpcbench.batch.shape import Shape, check
from hpcbench.batch.site import Site

Launch = Callable[[Shape, Site], list[str]]
"""Arguments after the program's name."""

_REGISTRY: dict[str, tuple[str, Launch]] = {}


def register_launcher(kind: str, program: str) -> Callable[[Launch], Launch]:
    """Register a dialect under the `kind` that site files use, and the program that it is started by."""

    def register(launch: Launch) -> Launch:
        _REGISTRY[kind] = (program, launch)
        return launch

    return register


def launch_line(shape: Shape, site: Site, program: str | None = None) -> list[str]:
    """The argument list that starts the ranks; the command to run is appended to it.

    Parameters
    ----------
    program
        Path of the launcher, in place of the site's and of the dialect's own.

    Raises
    ------
    ValueError
        The shape does not fit the node, or the dialect cannot say it.
    """
    check(shape, site)
    usual, launch = _REGISTRY[site.launcher.kind]
    return [program or site.launcher.program or usual, *launch(shape, site), *site.launcher.args]


def program_name(kind: str) -> str:
    """The program that a dialect is started by."""
    return _REGISTRY[kind][0]


def export_words(names: Iterable[str], site: Site) -> list[str]:
    """Options that carry variables of the launcher's environment to all ranks.

    Open MPI's mpirun passes its environment on to the ranks of its own node; the others pass it on to all.
    """
    return [word for name in names for word in ("-x", name)] if site.launcher.kind == "openmpi" else []


@register_launcher("mpich", "mpiexec")
def mpich(shape: Shape, site: Site) -> list[str]:
    """MPICH's Hydra. Ranks are not bound: waiting ranks burn their core, and bound ones cannot give way."""
    per_node = ["-ppn", str(shape.ranks_per_node)] if shape.nodes > 1 else []
    return ["-n", str(shape.ranks), *per_node, "-bind-to", "none"]


@register_launcher("openmpi", "mpirun")
def openmpi(shape: Shape, site: Site) -> list[str]:
    """Open MPI."""
    place = f"ppr:{shape.ranks_per_node}:node"
    if site.oversubscribe:
        return ["-np", str(shape.ranks), "--map-by", f"{place}:oversubscribe", "--bind-to", "none"]
    return ["-np", str(shape.ranks), "--map-by", f"{place}:PE={shape.cores_per_rank}", "--bind-to", "core"]


@register_launcher("srun", "srun")
def srun(shape: Shape, site: Site) -> list[str]:
    """Slurm. Every number is said: since 22.05 srun no longer takes --cpus-per-task from the job."""
    argv = [
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.ranks}",
        f"--ntasks-per-node={shape.ranks_per_node}",
        f"--cpus-per-task={shape.cores_per_rank * site.node.threads_per_core}",
    ]
    if not shape.gpus_per_rank:
        return [*argv, "--cpu-bind=cores"]
    if site.launcher.visibility == "one" and shape.gpus_per_rank.denominator == 1:
        return [*argv, f"--gpus-per-task={shape.gpus_per_rank}", "--gpu-bind=closest"]
    if site.launcher.visibility == "one":
        raise ValueError("srun gives a rank whole GPUs: set launcher.visibility to all, or use fewer ranks")
    return [*argv, "--cpu-bind=cores", f"--gpus-per-node={site.node.gpus}", "--gpu-bind=none"]


@register_launcher("ibrun", "ibrun")
def ibrun(shape: Shape, site: Site) -> list[str]:
    """TACC's launcher: it takes all counts from the head of the job script."""
    return []


@register_launcher("jsrun", "jsrun")
def jsrun(shape: Shape, site: Site) -> list[str]:
    """IBM's launcher. -n counts resource sets and -a ranks in each: n x a == ranks, n == nodes x r."""
    node, per_node = site.node, shape.ranks_per_node
    if site.launcher.visibility == "all":
        sets = 1
    elif site.launcher.visibility == "socket":
        sets = node.sockets
    elif 0 < shape.gpus_per_rank < 1:
        sets, rest = divmod(per_node, shape.gpus_per_rank.denominator)
        if rest:
            raise ValueError(f"{per_node} ranks a node do not share GPUs {shape.gpus_per_rank.denominator} at a time")
    else:
        sets = per_node
    ranks, rest = divmod(per_node, sets)
    if rest:
        raise ValueError(f"{per_node} ranks a node do not divide into {sets} resource sets")
    gpus = node.gpus // sets if site.launcher.visibility != "one" else max(1, int(shape.gpus_per_rank))
    gpus = gpus if shape.gpus_per_rank else 0
    cores = _set_cores(shape, site, sets, ranks)
    binding = f"packed:{max(1, cores // ranks)}"
    argv = [("-n", shape.nodes * sets), ("-r", sets), ("-a", ranks), ("-c", cores), ("-g", gpus)]
    line = [word for option, number in argv for word in (option, str(number))]
    return [*line, "-b", binding, "-d", "packed", *(["--smpiargs=-gpu"] if site.gpu_aware_mpi else [])]


def _set_cores(shape: Shape, site: Site, sets: int, ranks: int) -> int:
    """Cores of a resource set: its share of the node, or of a socket where sets must not straddle sockets."""
    node = site.node
    if site.launcher.visibility == "all":
        return node.usable_cores
    share = node.usable_cores // node.sockets // -(-sets // node.sockets)
    return max(share, shape.cores_per_rank * ranks) if sets > 1 else share


@register_launcher("lrun", "lrun")
def lrun(shape: Shape, site: Site) -> list[str]:
    """LLNL's front of jsrun. Its page allows no blank inside an option."""
    if shape.gpus_per_rank > 1:
        raise ValueError("lrun gives a rank one GPU: use jsrun, or one rank a GPU")
    if site.launcher.visibility == "socket":
        raise ValueError("lrun shows a rank one GPU or all: set launcher.visibility")
    argv = [f"-N{shape.nodes}", f"-T{shape.ranks_per_node}"]
    if site.launcher.visibility == "all":
        argv.append("--gpubind=off")
    return [*argv, *(["-M", "-gpu"] if site.gpu_aware_mpi else [])]
