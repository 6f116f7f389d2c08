"""Between launcher and interpreter: the words that start each rank in its container, one function a kind.

The launcher stays on the host and starts one container a rank: all launchers hand on to what follows them, and only
Slurm's pyxis is part of its launcher. So the order is launcher, container, interpreter, whatever the launcher is.
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcbench.batch.sites.site import Site
from hpcbench.study.container import Container, Kind, split_bind

Bind = tuple[str, str, bool]
"""Source, destination, and whether nothing may be written there."""


@dataclass(frozen=True)
class Contained:
    """What a job script says."""

    launch: list[str]
    """After the launcher's own arguments."""
    inside: list[str]
    """Between the launcher's and the interpreter."""


@dataclass(frozen=True)
class Request:
    """A container, and what it is to show."""

    container: Container
    site: Site
    ranks_per_node: int
    root: str
    """Working directory: the submission's."""
    binds: tuple[Bind, ...]
    names: tuple[str, ...]
    """Variables that ranks need, for what hands on none by itself."""

    @property
    def image(self) -> str:
        """Which there is."""
        return str(self.container.image)

    @property
    def gpu(self) -> str:
        """Whose driver is brought in."""
        if self.container.gpu != "auto":
            return self.container.gpu
        return "nvidia" if self.site.device == "cuda" else "none"

    @property
    def bound(self) -> bool:
        """Whether the host's MPI library takes the place of the image's."""
        return self.container.mpi == "bind"

    def spelled(self) -> list[str]:
        """Binds as SRC:DST, and :ro."""
        return [f"{source}:{place}{':ro' if fixed else ''}" for source, place, fixed in self.binds]


PROGRAMS: dict[Kind, str] = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "pyxis": "srun",
    "podman-hpc": "podman-hpc",
    "shifter": "shifter",
    "charliecloud": "ch-run",
}
"""The program that starts each kind of container."""
_BRINGS_MPI = ("podman-hpc", "shifter")
"""They have modules of the site's own for the host's MPI library."""
_ADD_PATHS = 'LD_LIBRARY_PATH="$0${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$@"'
_Words = Callable[[Request], Contained]
_REGISTRY: dict[str, _Words] = {}


def _register(*kinds: Kind) -> Callable[[_Words], _Words]:
    def register(words: _Words) -> _Words:
        for kind in kinds:
            _REGISTRY[kind] = words
        return words

    return register


def check(container: Container, site: Site) -> None:
    """Whether the site can run it.

    Raises
    ------
    ValueError
        What is missing, or does not go together: one line with the remedy.
    """
    if container.kind is None:
        raise ValueError(f"container.kind: is missing, in the study and in site {site.site}: say apptainer, pyxis ...")
    if container.kind == "pyxis" and site.launcher.kind != "srun":
        raise ValueError(
            f"container.kind: pyxis is part of srun, and the launcher of {site.site} is {site.launcher.kind}: use "
            "another kind, such as apptainer"
        )
    if container.mpi == "bind" and not container.mpi_paths and container.kind not in _BRINGS_MPI:
        raise ValueError("container.mpi_paths: bind needs the directories of the host's MPI library: name them")
    contained(container, site, ranks_per_node=1, root="/submission", reads=(), names=())


def contained(
    container: Container, site: Site, *, ranks_per_node: int, root: str, reads: Iterable[str], names: Sequence[str]
) -> Contained:
    """The words for one job.

    Parameters
    ----------
    container
        With a kind and an image.
    site
        Where it runs.
    ranks_per_node
        Containers that a node has at a time.
    root
        The submission's directory, absolute.
    reads
        Files that ranks read; ``DIRECTORY/.`` for all in a directory.
    names
        Variables that they need.

    Raises
    ------
    ValueError
        The kind cannot say it.
    """
    own = [root, *map(posixpath.dirname, reads)]
    binds = [split_bind(bind) for bind in dict.fromkeys([*own, *container.binds])]
    brings = container.mpi == "bind" and container.kind not in _BRINGS_MPI
    if brings:
        binds += [(path, path, True) for path in container.mpi_paths]
    request = Request(container, site, ranks_per_node, root, tuple(_once(binds)), tuple(names))
    found = _REGISTRY[str(container.kind)](request)
    paths = ["sh", "-c", _ADD_PATHS, ":".join(container.mpi_paths)] if brings else []
    return Contained(found.launch, [*found.inside, *paths])


def _once(binds: Iterable[Bind]) -> list[Bind]:
    """Without what lies within another one, at the same place of it: what is bound is bound with all below."""
    whole = list(dict.fromkeys(binds))
    kept = []
    for source, place, fixed in whole:
        above = ((s, p) for s, p, f in whole if (s, p) != (source, place) and not f and s == p)
        within = source == place and any(s == "/" or source.startswith(f"{s}/") for s, _ in above)
        if not within:
            kept.append((source, place, fixed))
    return kept


@_register("apptainer", "singularity")
def _apptainer(request: Request) -> Contained:
    """Apptainer, and Singularity, which it was called before. The environment goes in by itself."""
    binds = [word for bind in request.spelled() for word in ("--bind", bind)]
    gpu = {"nvidia": ["--nv"], "rocm": ["--rocm"], "none": []}[request.gpu]
    own = [str(request.container.kind), "exec", *binds, "--pwd", request.root, *gpu, *request.container.args]
    return Contained([], [*own, request.image])


@_register("pyxis")
def _pyxis(request: Request) -> Contained:
    """Slurm's plugin: options of srun. enroot brings in the driver of GPUs by a hook, as the image's variables say."""
    if request.gpu == "rocm":
        raise ValueError("container.gpu: enroot's hook brings in NVIDIA's driver only: leave it out, and bind ROCm")
    mounts = ",".join(request.spelled())
    own = [f"--container-image={request.image}", f"--container-mounts={mounts}", f"--container-workdir={request.root}"]
    return Contained([*own, *request.container.args], [])


@_register("podman-hpc")
def _podman_hpc(request: Request) -> Contained:
    """NERSC's podman: the environment does not go in by itself; names that end with * stand for all such."""
    if request.gpu == "rocm":
        raise ValueError("container.gpu: podman-hpc has a flag for NVIDIA only: set none, and give devices as args")
    gpu = ["--gpu"] if request.gpu == "nvidia" else []
    mpi = [] if not request.bound else ["--cuda-mpi"] if gpu and request.site.gpu_aware_mpi else ["--mpi"]
    launchers = ("SLURM_*", "PMI_*", "PMIX_*", "PALS_*", "OMPI_*", "FLUX_*", "HPCBENCH_*")
    names = [word for name in (*launchers, *request.names) for word in ("-e", name)]
    binds = [word for bind in request.spelled() for word in ("-v", bind)]
    own = ["podman-hpc", "run", "--rm", *gpu, *mpi, *names, *binds, "-w", request.root, *request.container.args]
    return Contained([], [*own, request.image])


@_register("shifter")
def _shifter(request: Request) -> Contained:
    """NERSC's shifter: modules of the site bring in driver and MPI library."""
    if request.gpu == "rocm":
        raise ValueError("container.gpu: shifter has a module for NVIDIA only: set none, and give a module as args")
    modules = ["gpu"] if request.gpu == "nvidia" else []
    if request.bound:
        modules.append("cuda-mpich" if modules and request.site.gpu_aware_mpi else "mpich")
    volumes = [f"--volume={bind}" for bind in request.spelled()]
    own = [f"--image={request.image}", f"--module={','.join(modules) or 'none'}", f"--workdir={request.root}"]
    return Contained([], ["shifter", *own, *volumes, *request.container.args])


@_register("charliecloud")
def _charliecloud(request: Request) -> Contained:
    """Charliecloud. Ranks of a node share one container: apart, they could not reach each other's memory."""
    if request.container.gpu not in ("auto", "none"):
        raise ValueError("container.gpu: Charliecloud's images get the driver by `ch-fromhost`: leave it out")
    if fixed := [bind for bind, (_, _, ro) in zip(request.spelled(), request.binds, strict=True) if ro]:
        own = [bind for bind in fixed if bind.partition(":")[0] not in request.container.mpi_paths]
        if own:
            raise ValueError(f"container.binds: {own[0]}: Charliecloud cannot keep a bind from being written: no :ro")
    # The host's /tmp (or what TMPDIR names, in its place) is there anyway, and nothing can be bound below it.
    private = {"-t", "--private-tmp"} & {*request.container.args}
    there = [(s, p) for s, p, _ in request.binds if s == p and f"{s}/".startswith("/tmp/") and not private]
    binds = [word for s, p, _ in request.binds if (s, p) not in there for word in ("-b", f"{s}:{p}")]
    own_tmp = ["env", "-u", "TMPDIR"] if there else []
    several = ["--join", f"--join-ct={request.ranks_per_node}"] if request.ranks_per_node > 1 else []
    args = [*binds, f"--cd={request.root}", *request.container.args]
    return Contained([], [*own_tmp, "ch-run", *several, *args, request.image, "--"])
