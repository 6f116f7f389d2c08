"""Events about the machine and the software of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class HostGpu(LogObject):
    """A GPU of a host, as nvidia-smi describes it. Figures that nvidia-smi does not report are left out."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    compute_mode: str | None = None


@dataclass(frozen=True, kw_only=True)
class Host(LogObject):
    """A host: its processors, memory and GPUs."""

    host: str | None
    kernel: str | None
    """Release of the operating system's kernel."""
    cpu: str | None = None
    cpu_mhz: float | None = None
    """Clock frequency when it was read, a mean over the cores."""
    governor: str | None = None
    cpu_max_mhz: float | None = None
    gpus: tuple[HostGpu, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RankGpu(LogObject):
    """The GPU that a rank computes on."""

    number: int | None
    """The GPU's number among those that the rank sees."""
    uuid: str | None
    pci: str | None
    visible: int | None
    """How many GPUs the rank sees."""
    peers: tuple[int, ...] | None
    """The GPUs among the visible ones whose memory this GPU can reach directly."""


@dataclass(frozen=True, kw_only=True)
class Rank(LogObject):
    """A rank, its host and its devices."""

    rank: int | None
    local_rank: int | None
    host: str | None
    machine: str | None = None
    """Identity of the running kernel, which all virtual hosts and containers of a machine share."""
    pid: int | None
    cores: tuple[int, ...] | None
    """Cores that the rank may run on."""
    core_ranges: str | None
    """The same cores as ranges, such as ``0-6,28-34``."""
    host_cores: int | None
    numa: tuple[int, ...] | None
    """NUMA nodes of the rank's cores; None where the kernel does not report them."""
    device: str | None
    """The device: ``cpu``, or ``cuda:1 NAME``."""
    gpu: RankGpu | None = None
    visible: dict[str, Any] | None
    """Environment variables that choose the GPUs that the rank sees."""
    nics: dict[str, Any] | None
    """Environment variables that choose the rank's network interfaces."""
    threads: int | None
    environment: dict[str, Any] | None = None
    """The environment variables of the scheme, with the values that reached the rank."""


@dataclass(frozen=True, kw_only=True)
class Environment(Event):
    """Hosts, ranks, libraries, and the settings that decide how messages travel."""

    NAME: ClassVar[str] = "environment"
    mpi: str | None
    """Name and version of the MPI library, as the library gives them."""
    python: str | None
    torch: str | None
    numpy: str | None
    kernels: str | None
    """The instruction set that the codecs' kernels use."""
    comm_precision: dict[str, Any] | None
    """Number format of messages, by their content."""
    overlap: bool | None
    """Whether messages travel while ranks compute."""
    mpi_thread_level: int | None
    links: str | None
    """The file with the measured times of the links."""
    links_note: str | None = None
    """Why the measured times do not apply here."""
    half_sums: dict[str, Any] | None = None
    """The program part that sums 16-bit values, by number format."""
    gpu_aware_mpi: str | None = None
    container: str | None = None
    """Program and image that the ranks run in."""
    packages: dict[str, Any] | None
    """Versions of the Python packages."""
    modules: tuple[str, ...] | None = None
    """Environment modules that were loaded."""
    revision: str | None = None
    """Git revision of hpcbench, with ``-dirty`` where it had changes."""
    hosts: tuple[Host, ...] | None
    world: tuple[Rank, ...] | None
    """The ranks in their order."""


@dataclass(frozen=True, kw_only=True)
class Binding(Event):
    """Ranks are placed so that they may slow each other down."""

    NAME: ClassVar[str] = "binding"
    warnings: tuple[str, ...] | None
