"""Events about the machine and the software of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class HostGpu(LogObject):
    """A GPU of a host, as reported by nvidia-smi. Values that nvidia-smi does not report are omitted."""

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
    """Current clock frequency, averaged over the cores."""
    governor: str | None = None
    cpu_max_mhz: float | None = None
    gpus: tuple[HostGpu, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RankGpu(LogObject):
    """The GPU that a rank computes on."""

    number: int | None
    """Index of the GPU among those that are visible to the rank."""
    uuid: str | None
    pci: str | None
    visible: int | None
    """Number of GPUs that are visible to the rank."""
    peers: tuple[int, ...] | None
    """Indices of the visible GPUs whose memory this GPU can access directly."""


@dataclass(frozen=True, kw_only=True)
class Rank(LogObject):
    """A rank, its host and its devices."""

    rank: int | None
    local_rank: int | None
    host: str | None
    machine: str | None = None
    """Identity of the running kernel, which is the same in all virtual hosts and containers of a machine."""
    pid: int | None
    cores: tuple[int, ...] | None
    """Cores that the rank may run on."""
    core_ranges: str | None
    """The cores as ranges, such as ``0-6,28-34``."""
    host_cores: int | None
    numa: tuple[int, ...] | None
    """NUMA nodes of the rank's cores, or None if the kernel does not report them."""
    device: str | None
    """The device: ``cpu``, or ``cuda:1 NAME``."""
    gpu: RankGpu | None = None
    visible: dict[str, Any] | None
    """Environment variables that select the GPUs visible to the rank."""
    nics: dict[str, Any] | None
    """Environment variables that select the network interfaces of the rank."""
    threads: int | None
    environment: dict[str, Any] | None = None
    """Environment variables of the scheme, with their values on the rank."""


@dataclass(frozen=True, kw_only=True)
class Environment(Event):
    """Hosts, ranks, libraries, and the settings that affect communication."""

    NAME: ClassVar[str] = "environment"
    mpi: str | None
    """Name and version that the MPI library reports."""
    python: str | None
    torch: str | None
    numpy: str | None
    kernels: str | None
    """Instruction set of the codecs' kernels."""
    comm_precision: dict[str, Any] | None
    """Number format of the messages, keyed by kind of content."""
    overlap: bool | None
    """Whether communication overlaps with computation."""
    mpi_thread_level: int | None
    links: str | None
    """File with measured link times."""
    links_note: str | None = None
    """Reason why the measured times do not apply to this run."""
    half_sums: dict[str, Any] | None = None
    """Implementation of the sum of 16-bit values, keyed by number format."""
    gpu_aware_mpi: str | None = None
    transport: str | None = None
    """Library that transports messages, with the NCCL version."""
    container: str | None = None
    """Container program and image of the ranks."""
    packages: dict[str, Any] | None
    """Versions of the Python packages."""
    modules: tuple[str, ...] | None = None
    """Loaded environment modules."""
    revision: str | None = None
    """Git revision of hpcbench, with ``-dirty`` if the checkout had changes."""
    hosts: tuple[Host, ...] | None
    world: tuple[Rank, ...] | None
    """The ranks in order."""


@dataclass(frozen=True, kw_only=True)
class Binding(Event):
    """Warnings about a placement in which ranks may slow each other down."""

    NAME: ClassVar[str] = "binding"
    warnings: tuple[str, ...] | None
