"""Command-line arguments that start each rank in a container, with one function per container kind.

The launcher runs on the host and starts one container per rank. A command consists of launcher, container, and
interpreter, in this order. The exception is pyxis, which is a plugin of Slurm's launcher.
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcbench.batch.sites.site import Site
from hpcbench.study.container import Container, Kind, split_bind

Bind = tuple[str, str, bool]
"""Source path, destination path, and whether the bind is read-only."""


@dataclass(frozen=True)
class Contained:
    """Container arguments of a launch command."""

    launch: list[str]
    """Arguments appended to the launcher's arguments."""
    inside: list[str]
    """Arguments between the launcher's arguments and the interpreter."""


@dataclass(frozen=True)
class ContainerRequest:
    """A container, with the files and variables that must be available inside it."""

    container: Container
    site: Site
    ranks_per_node: int
    root: str
    """Working directory, which is the submission directory."""
    binds: tuple[Bind, ...]
    names: tuple[str, ...]
    """Names of the variables that ranks need, for kinds that do not pass on the environment."""

    @property
    def image(self) -> str:
        """Name or path of the image."""
        return str(self.container.image)

    @property
    def gpu(self) -> str:
        """GPU driver to provide in the container: ``nvidia``, ``rocm`` or ``none``."""
        if self.container.gpu != "auto":
            return self.container.gpu
        return "nvidia" if self.site.device == "cuda" else "none"

    @property
    def binds_mpi(self) -> bool:
        """Whether the host's MPI library replaces the image's."""
        return self.container.mpi == "bind"

    def format_binds(self) -> list[str]:
        """Format the binds as ``SRC:DST`` or ``SRC:DST:ro``."""
        return [f"{source}:{place}{':ro' if fixed else ''}" for source, place, fixed in self.binds]


PROGRAMS: dict[Kind, str] = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "pyxis": "srun",
    "podman-hpc": "podman-hpc",
    "shifter": "shifter",
    "charliecloud": "ch-run",
}
"""Program that starts each kind of container."""
_BRINGS_MPI = ("podman-hpc", "shifter")
"""Kinds for which the site provides modules with the host's MPI library."""
_ADD_PATHS = 'LD_LIBRARY_PATH="$0${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$@"'


def check(container: Container, site: Site) -> None:
    """Check that the site can run a container.

    Raises
    ------
    ValueError
        A field is missing, or fields contradict each other. The message is one line with the remedy.
    """
    if container.kind is None:
        raise ValueError(
            f"container.kind: is set neither in the study nor in site {site.site}: set it, for example to apptainer"
        )
    if container.kind == "pyxis" and site.launcher.kind != "srun":
        raise ValueError(
            f"container.kind: pyxis is part of srun, and the launcher of {site.site} is {site.launcher.kind}: use "
            "another kind, such as apptainer"
        )
    if container.mpi == "bind" and not container.mpi_paths and container.kind not in _BRINGS_MPI:
        raise ValueError(
            "container.mpi_paths: is empty, but container.mpi bind needs the directories of the host's MPI library: "
            "list them"
        )
    contained(container, site, ranks_per_node=1, root="/submission", reads=(), names=())


def contained(
    container: Container, site: Site, *, ranks_per_node: int, root: str, reads: Iterable[str], names: Sequence[str]
) -> Contained:
    """Return the container arguments of a job.

    Parameters
    ----------
    root
        Absolute path of the submission's directory.
    reads
        Files that ranks read. ``DIRECTORY/.`` stands for all files in a directory.

    Raises
    ------
    ValueError
        The kind of container does not support the request.
    """
    directories = [root, *map(posixpath.dirname, reads)]
    binds = [split_bind(bind) for bind in dict.fromkeys([*directories, *container.binds])]
    adds_mpi = container.mpi == "bind" and container.kind not in _BRINGS_MPI
    if adds_mpi:
        binds += [(path, path, True) for path in container.mpi_paths]
    request = ContainerRequest(container, site, ranks_per_node, root, tuple(_drop_nested(binds)), tuple(names))
    arguments = _BUILDERS[str(container.kind)](request)
    paths = ["sh", "-c", _ADD_PATHS, ":".join(container.mpi_paths)] if adds_mpi else []
    return Contained(arguments.launch, [*arguments.inside, *paths])


def _drop_nested(binds: Iterable[Bind]) -> list[Bind]:
    """Drop binds nested in other binds. A bind includes everything below its directory."""
    unique = list(dict.fromkeys(binds))
    outer = []
    for source, place, fixed in unique:
        above = ((s, p) for s, p, f in unique if (s, p) != (source, place) and not f and s == p)
        within = source == place and any(s == "/" or source.startswith(f"{s}/") for s, _ in above)
        if not within:
            outer.append((source, place, fixed))
    return outer


def _apptainer(request: ContainerRequest) -> Contained:
    """Build the arguments of Apptainer, formerly Singularity. Apptainer passes the environment on to the ranks."""
    binds = [word for bind in request.format_binds() for word in ("--bind", bind)]
    gpu = {"nvidia": ["--nv"], "rocm": ["--rocm"], "none": []}[request.gpu]
    command = [str(request.container.kind), "exec", *binds, "--pwd", request.root, *gpu, *request.container.args]
    return Contained([], [*command, request.image])


def _pyxis(request: ContainerRequest) -> Contained:
    """Build the options of Slurm's pyxis plugin.

    An enroot hook adds the GPU driver that the image's variables select.
    """
    if request.gpu == "rocm":
        raise ValueError(
            "container.gpu: enroot's hook supports only NVIDIA's driver: leave gpu out, and add ROCm to container.binds"
        )
    mounts = ",".join(request.format_binds())
    image, workdir = f"--container-image={request.image}", f"--container-workdir={request.root}"
    return Contained([image, f"--container-mounts={mounts}", workdir, *request.container.args], [])


def _podman_hpc(request: ContainerRequest) -> Contained:
    """Build the arguments of NERSC's podman-hpc. Only named variables are passed on. A name may end with ``*``."""
    if request.gpu == "rocm":
        raise ValueError(
            "container.gpu: podman-hpc has a flag only for NVIDIA: set none, and add the devices to container.args"
        )
    gpu = ["--gpu"] if request.gpu == "nvidia" else []
    mpi = [] if not request.binds_mpi else ["--cuda-mpi"] if gpu and request.site.gpu_aware_mpi else ["--mpi"]
    launchers = ("SLURM_*", "PMI_*", "PMIX_*", "PALS_*", "OMPI_*", "FLUX_*", "HPCBENCH_*")
    names = [word for name in (*launchers, *request.names) for word in ("-e", name)]
    binds = [word for bind in request.format_binds() for word in ("-v", bind)]
    command = ["podman-hpc", "run", "--rm", *gpu, *mpi, *names, *binds, "-w", request.root, *request.container.args]
    return Contained([], [*command, request.image])


def _shifter(request: ContainerRequest) -> Contained:
    """Build the arguments of NERSC's shifter. Site modules add the GPU driver and the MPI library."""
    if request.gpu == "rocm":
        raise ValueError(
            "container.gpu: Shifter has a GPU module only for NVIDIA: set `none`, and add a module to container.args"
        )
    modules = ["gpu"] if request.gpu == "nvidia" else []
    if request.binds_mpi:
        modules.append("cuda-mpich" if modules and request.site.gpu_aware_mpi else "mpich")
    volumes = [f"--volume={bind}" for bind in request.format_binds()]
    options = [f"--image={request.image}", f"--module={','.join(modules) or 'none'}", f"--workdir={request.root}"]
    return Contained([], ["shifter", *options, *volumes, *request.container.args])


def _charliecloud(request: ContainerRequest) -> Contained:
    """Build the arguments of Charliecloud. All ranks on a node share one container, so that they can share memory."""
    if request.container.gpu not in ("auto", "none"):
        raise ValueError("container.gpu: with Charliecloud, `ch-fromhost` adds the driver to the image: leave gpu out")
    if fixed := [bind for bind, (_, _, ro) in zip(request.format_binds(), request.binds, strict=True) if ro]:
        others = [bind for bind in fixed if bind.partition(":")[0] not in request.container.mpi_paths]
        if others:
            raise ValueError(f"container.binds: {others[0]}: Charliecloud has no read-only binds: remove :ro")
    # The host's $TMPDIR (default: /tmp) is always mounted. Nothing can be bound below it.
    private = {"-t", "--private-tmp"} & {*request.container.args}
    there = [(s, p) for s, p, _ in request.binds if s == p and f"{s}/".startswith("/tmp/") and not private]
    binds = [word for s, p, _ in request.binds if (s, p) not in there for word in ("-b", f"{s}:{p}")]
    without_tmpdir = ["env", "-u", "TMPDIR"] if there else []
    several = ["--join", f"--join-ct={request.ranks_per_node}"] if request.ranks_per_node > 1 else []
    args = [*binds, f"--cd={request.root}", *request.container.args]
    return Contained([], [*without_tmpdir, "ch-run", *several, *args, request.image, "--"])


_BUILDERS: dict[str, Callable[[ContainerRequest], Contained]] = {
    "apptainer": _apptainer,
    "singularity": _apptainer,
    "pyxis": _pyxis,
    "podman-hpc": _podman_hpc,
    "shifter": _shifter,
    "charliecloud": _charliecloud,
}
