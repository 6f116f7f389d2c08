"""What a run ran on, and with which software."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import Part


@dataclass(frozen=True, kw_only=True)
class HostGpu(Part):
    """A GPU of a host, as nvidia-smi describes it. Figures that it does not know are left out."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    compute_mode: str | None = None


@dataclass(frozen=True, kw_only=True)
class Host(Part):
    """Processors of a host."""

    host: str | None
    kernel: str | None
    """Release of its operating system's kernel."""
    cpu: str | None = None
    cpu_mhz: float | None = None
    """Mean over its cores, at the moment when it was read."""
    governor: str | None = None
    cpu_max_mhz: float | None = None
    gpus: tuple[HostGpu, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RankGpu(Part):
    """The GPU that a rank computes on."""

    number: int | None
    """Among those that the rank sees."""
    uuid: str | None
    pci: str | None
    visible: int | None
    """How many GPUs the rank sees."""
    peers: tuple[int, ...] | None
    """Those of them whose memory it can reach."""


@dataclass(frozen=True, kw_only=True)
class Rank(Part):
    """Who and where a rank is."""

    rank: int | None
    local_rank: int | None
    host: str | None
    pid: int | None
    cores: tuple[int, ...] | None
    """That the rank may run on."""
    core_ranges: str | None
    """The same as ``0-6,28-34``."""
    host_cores: int | None
    numa: tuple[int, ...] | None
    """NUMA nodes of its cores; None where the kernel does not say."""
    device: str | None
    """``cpu``, or ``cuda:1 NAME``."""
    gpu: RankGpu | None = None
    visible: dict[str, Any] | None
    """Variables that choose the GPUs that it sees."""
    nics: dict[str, Any] | None
    """Variables that choose its network interfaces."""
    threads: int | None
    environment: dict[str, Any] | None = None
    """The variables that the scheme sets, as they reached the rank."""


@dataclass(frozen=True, kw_only=True)
class Environment(Event):
    """Hosts, ranks, libraries and what decides how messages travel."""

    NAME: ClassVar[str] = "environment"
    mpi: str | None
    """The MPI library, as it names itself."""
    python: str | None
    torch: str | None
    numpy: str | None
    kernels: str | None
    """The instruction set of the codecs' kernels."""
    comm_precision: dict[str, Any] | None
    """Precision of messages, by what they carry."""
    overlap: bool | None
    """Whether messages travel while ranks compute."""
    mpi_thread_level: int | None
    links: str | None
    """The file of the links' measured times."""
    links_note: str | None = None
    """Why these times do not hold here."""
    half_sums: dict[str, Any] | None = None
    """Who sums values of 16 bits, by their format."""
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
    """The ranks, in their order."""


@dataclass(frozen=True, kw_only=True)
class Binding(Event):
    """Where ranks lie so that they may slow each other down."""

    NAME: ClassVar[str] = "binding"
    warnings: tuple[str, ...] | None
