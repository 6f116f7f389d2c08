"""Launch commands as argument lists, with one function per launcher dialect."""

from collections.abc import Callable, Iterable

from hpcbench.batch.scripts.shape import Shape, cut_node, shape
from hpcbench.batch.sites.site import Site

Launch = Callable[[Shape, Site], list[str]]
"""Function that returns the launcher's arguments, without the program name."""

HOST_FILE = "jobs/JOB/hosts"
"""Placeholder in launch commands for the job's host file, which has one line per rank and omits the launch host."""
_MOST_TRIED = 4096
"""Maximum number of ranks per node in the search for a shape that fits."""


def solve(site: Site, *, nodes: int, ranks_per_node: int, program: str | None = None) -> tuple[Shape, list[str]]:
    """Return the shape of a run on the site, and the launch command, to which the command of a rank is appended.

    Parameters
    ----------
    program
        Path of the launcher. The default is the site's launcher, or the dialect's program.

    Raises
    ------
    ValueError
        The ranks do not fit on the node, or the dialect cannot express their shape. The message is one line with the
        reason and the nearest fit.
    """
    usual, launch = _DIALECTS[site.launcher.kind]

    def attempt(ranks: int) -> tuple[Shape, list[str]]:
        attempted = shape(site, nodes=nodes, ranks_per_node=ranks)
        return attempted, [program or site.launcher.program or usual, *launch(attempted, site), *site.launcher.args]

    try:
        return attempt(ranks_per_node)
    except ValueError as error:
        reason = error
    most = min(max(site.node.usable_cores, site.node.gpus), _MOST_TRIED)
    for ranks in sorted(range(1, most + 1), key=lambda number: (abs(number - ranks_per_node), number)):
        try:
            nearest, _ = attempt(ranks)
        except ValueError:
            continue
        raise ValueError(f"{reason}; the nearest shape that fits is {nearest}") from None
    raise reason


def program_name(kind: str) -> str:
    """Return the program name of a dialect."""
    return _DIALECTS[kind][0]


def export_words(names: Iterable[str], site: Site) -> list[str]:
    """Return the launcher options that export environment variables to all ranks.

    Open MPI's mpirun exports its environment only to ranks on its own node. jsrun might not export variables with the
    prefix OMPI_. Other launchers export all variables to all ranks.
    """
    option = {"openmpi": "-x", "jsrun": "-E"}.get(site.launcher.kind)
    return [word for name in names for word in (option, name)] if option else []


def mpich(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of MPICH's Hydra.

    Ranks that share cores are not bound, because a waiting rank keeps its core busy and other ranks must be able to
    migrate. Hydra assigns cores in order. If a rank would otherwise be split across sockets, ranks are placed
    round-robin over sockets.
    """
    per_node = ["-ppn", str(shape.ranks_per_node)] if shape.nodes > 1 else []
    argv = ["-n", str(shape.ranks), *per_node, *_hosts(site), "-bind-to"]
    if site.oversubscribe:
        return [*argv, "none"]
    cores, of_socket = shape.cores_per_rank, site.node.socket_cores
    straddles = of_socket % cores and shape.ranks_per_node > of_socket // cores and site.visibility != "all"
    return [*argv, f"core:{cores}", *(["-map-by", "socket"] if straddles else [])]


def _hosts(site: Site) -> list[str]:
    """Return Hydra's host file option.

    Without a host file, Hydra would place ranks on the launch host of a job submitted with -nnodes.
    """
    return ["-f", HOST_FILE] if site.scheduler.kind == "lsf" and site.scheduler.allocation == "nodes" else []


def mvapich(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of MVAPICH's mpiexec, a version of Hydra.

    By default, the library binds each rank to one core, which all threads of the rank would share. Here Hydra binds the
    ranks instead. The library's variables have the prefix MV2_ up to version 2, and MVP_ since version 3.
    """
    off = [word for prefix in ("MV2", "MVP") for word in ("-genv", f"{prefix}_ENABLE_AFFINITY", "0")]
    return [*mpich(shape, site), *off]


def mpirun_rsh(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of mpirun_rsh, the launcher of MVAPICH2 and MVAPICH2-GDR.

    Ranks are assigned to the hosts of the host file in order. The library binds each rank to its cores, unless ranks
    share cores.
    """
    argv = ["-export-all", "-np", str(shape.ranks), "-hostfile", HOST_FILE]
    if site.oversubscribe:
        return [*argv, "MV2_ENABLE_AFFINITY=0"]
    cores = f"MV2_THREADS_PER_PROCESS={shape.cores_per_rank}"
    gpus = ["MV2_USE_CUDA=1"] if site.gpu_aware_mpi and site.device == "cuda" else []
    return [*argv, "MV2_ENABLE_AFFINITY=1", "MV2_CPU_BINDING_POLICY=hybrid", cores, *gpus]


def openmpi(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of Open MPI's mpirun."""
    place = f"ppr:{shape.ranks_per_node}:node"
    if site.oversubscribe:
        return ["-np", str(shape.ranks), "--map-by", f"{place}:oversubscribe", "--bind-to", "none"]
    return ["-np", str(shape.ranks), "--map-by", f"{place}:PE={shape.cores_per_rank}", "--bind-to", "core"]


def srun(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of srun, with all counts given explicitly.

    Since version 22.05, srun ignores the job's --cpus-per-task.
    """
    argv = [
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.ranks}",
        f"--ntasks-per-node={shape.ranks_per_node}",
        f"--cpus-per-task={shape.cores_per_rank * site.node.threads_per_core}",
    ]
    if not shape.gpus_per_rank:
        return [*argv, "--cpu-bind=cores"]
    _one_or_all(shape, site)
    if site.visibility == "one":
        # Slurm manual: closest binds a task to all GPUs of its NUMA domain, per_task to the requested number of GPUs.
        return [*argv, f"--gpus-per-task={shape.gpus_per_rank}", f"--gpu-bind=per_task:{shape.gpus_per_rank}"]
    # A step gets all GPUs of its job. If the site defines a GPU request, the step repeats it.
    asked = {"none": [], "gres": [f"--gres=gpu:{site.node.gpus}"]}
    again = asked.get(site.scheduler.gpu_request, [f"--gpus-per-node={site.node.gpus}"])
    return [*argv, "--cpu-bind=cores", *again, "--gpu-bind=none"]


def flux(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of `flux run`. Per-task and per-node options are mutually exclusive."""
    if shape.gpus_per_rank and site.visibility != "one":
        _one_or_all(shape, site)
        argv = ["--exclusive", f"--nodes={shape.nodes}", f"--tasks-per-node={shape.ranks_per_node}"]
        return ["run", *argv, "-o", "cpu-affinity=per-task", "-o", "gpu-affinity=off"]
    argv = ["run", f"-N{shape.nodes}", f"-n{shape.ranks}", f"-c{shape.cores_per_rank}"]
    if not shape.gpus_per_rank:
        return [*argv, "-o", "cpu-affinity=per-task"]
    _one_or_all(shape, site)
    return [*argv, f"-g{shape.gpus_per_rank}", "-o", "cpu-affinity=per-task", "-o", "gpu-affinity=per-task"]


def _one_or_all(shape: Shape, site: Site) -> None:
    """Refuse shapes with fractional GPUs for launchers that assign only whole GPUs."""
    kind = site.launcher.kind
    if site.visibility == "socket":
        raise ValueError(f"{kind} shows a rank only its own GPUs or all GPUs: set launcher.visibility to one or all")
    if site.visibility == "one" and shape.gpus_per_rank.denominator > 1:
        raise ValueError(f"{kind} gives a rank only whole GPUs: set launcher.visibility to all, or use fewer ranks")


def ibrun(shape: Shape, site: Site) -> list[str]:
    """Return no arguments. TACC's launcher reads all counts from the job script's directives."""
    return []


def jsrun(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of IBM's jsrun: -n resource sets with -a ranks each."""
    sets = cut_node(shape.ranks_per_node, shape.gpus_per_rank, site)
    numbers = {"-n": shape.nodes * sets.per_node, "-r": sets.per_node, "-a": sets.ranks, "-c": sets.cores}
    line = [word for option, number in {**numbers, "-g": sets.gpus}.items() for word in (option, str(number))]
    binding = ["-b", f"packed:{shape.cores_per_rank}", "-d", "packed"]
    variables = export_words((name for name in site.environment if name.startswith("OMPI_")), site)
    return [*line, *binding, *(["--smpiargs=-gpu"] if _spectrum_takes_gpus(site) else []), *variables]


def _spectrum_takes_gpus(site: Site) -> bool:
    return bool(site.gpu_aware_mpi) and site.launcher.mpi != "mvapich"


def lrun(shape: Shape, site: Site) -> list[str]:
    """Return the arguments of LLNL's jsrun wrapper. The wrapper's options cannot contain blanks."""
    if shape.gpus_per_rank and site.visibility == "socket":
        raise ValueError("lrun shows a rank only one GPU or all GPUs: set launcher.visibility to one or all")
    argv = [f"-N{shape.nodes}", f"-T{shape.ranks_per_node}"]
    if shape.gpus_per_rank and site.visibility == "all":
        argv.append("--gpubind=off")
    return [*argv, *(["-M", "-gpu"] if _spectrum_takes_gpus(site) else [])]


_DIALECTS: dict[str, tuple[str, Launch]] = {
    "auto": ("mpiexec", mpich),  # the dialect is detected when the site is loaded
    "mpich": ("mpiexec", mpich),
    "mvapich": ("mpiexec", mvapich),
    "mpirun_rsh": ("mpirun_rsh", mpirun_rsh),
    "openmpi": ("mpirun", openmpi),
    "srun": ("srun", srun),
    "flux": ("flux", flux),
    "ibrun": ("ibrun", ibrun),
    "jsrun": ("jsrun", jsrun),
    "lrun": ("lrun", lrun),
}
"""Program and arguments of each launcher dialect, keyed by `launcher.kind` of the site file."""
