"""What was measured over the steps that count for a run's speed: traffic, phases of a step, hosts; and memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import Part


@dataclass(frozen=True, kw_only=True)
class ChannelTraffic(Part):
    """What went through a channel: sums over all ranks and the steps that are counted."""

    COUNTS: ClassVar = ("calls", "plain_calls", "message_bytes", "wire_bytes", "coded_bytes", "network_bytes")
    SECONDS: ClassVar = ("encode_s", "decode_s", "transfer_s", "exposed_s", "hidden_s")
    dimension: str | None
    phase: str | None
    kind: str | None
    axis: str | None = None
    """Of a tensor grid; left out of what is no traffic of one."""
    codec: str | None
    dtype: str | None = None
    """Of the messages; left out where the channel leaves it open."""
    min_bytes: int | None = 0
    """Messages below it are not encoded."""
    between_nodes: bool | None = False
    """Whether only what leaves a node is encoded."""
    algorithm: str | None
    """What was asked for."""
    algorithms: dict[str, Any] | None
    """Calls of the first rank, by what carried them out."""
    calls: int | None
    """Collectives and messages."""
    plain_calls: int | None
    """Calls without the channel's codec: it would have lost time, or the scheme's rule says so."""
    message_bytes: int | None
    """Before the codec."""
    wire_bytes: int | None
    """After the codec."""
    coded_bytes: int | None
    """Those before the codec that went through it."""
    network_bytes: int | None
    """Wire bytes that left a node. The MPI library's own collectives do not say; they add 0."""
    encode_s: float | None
    decode_s: float | None
    transfer_s: float | None
    """The rest of the time from begin to end of the calls."""
    exposed_s: float | None
    """In which the caller waited."""
    hidden_s: float | None
    """In which the calls moved while the caller did something else."""
    sampled_error: float | None
    """Relative error of the sampled values, 2-norm; None where none was sampled."""


@dataclass(frozen=True, kw_only=True)
class Counted(Event):
    """An event of some steps."""

    from_step: int | None
    to_step: int | None
    """The last step that is counted."""


@dataclass(frozen=True, kw_only=True)
class Traffic(Counted):
    """What the run sent."""

    NAME: ClassVar[str] = "traffic"
    channels: tuple[ChannelTraffic, ...] | None
    host_down_bytes: int | None = None
    """Copied from devices to hosts by all ranks, where states are offloaded."""
    host_up_bytes: int | None = None
    """Copied from hosts to devices by all ranks, where states are offloaded."""


@dataclass(frozen=True, kw_only=True)
class StageTimes(Part):
    """Seconds of a step in which the ranks of one stage of the pipeline were about each thing: means."""

    stage: int | None
    forward_s: float | None
    backward_s: float | None
    """With what is computed again."""
    bubble_s: float | None
    """In the passes, waiting for another stage's message until it is there."""
    reduction_s: float | None
    """After the last backward pass, until the gradients are reduced."""
    optimizer_s: float | None
    """From the gradient norm to the new weights, gathered."""
    other_s: float | None
    """What is left of the step."""
    step_s: float | None
    """The step: the sum of the others."""


@dataclass(frozen=True, kw_only=True)
class Phases(Counted):
    """What the ranks were about in a step."""

    NAME: ClassVar[str] = "phases"
    stages: tuple[StageTimes, ...] | None


@dataclass(frozen=True, kw_only=True)
class HostTimes(Part):
    """How long the ranks of a host computed in a step."""

    host: str | None
    ranks: int | None
    compute_s: float | None
    """Mean over its ranks, without the time in which they waited for messages."""
    over_peers: float | None
    """Mean over its ranks of their time over the median at the same stage; None where no other host has such ranks."""


@dataclass(frozen=True, kw_only=True)
class Hosts(Counted):
    """How long each host computed."""

    NAME: ClassVar[str] = "hosts"
    hosts: tuple[HostTimes, ...] | None


@dataclass(frozen=True, kw_only=True)
class EnergyCounter(Part):
    """A counter of energy, over the steps that are counted."""

    host: str | None
    source: str | None
    """``rapl``, ``cray`` or ``nvml``."""
    name: str | None
    """Among those of its host."""
    part: str | None
    """``node``, ``gpu`` or ``processor``."""
    joules: float | None
    refresh_s: float | None
    """Seconds between two of its changes, about."""
    problem: str | None = None
    """Why there are no joules."""


@dataclass(frozen=True, kw_only=True)
class Energy(Counted):
    """What the steps took in joules, all hosts together; evaluations and checkpoints between them are left out."""

    NAME: ClassVar[str] = "energy"
    seconds: float | None
    """For which the counters ran."""
    scope: str | None
    """What the joules are of: nodes, GPUs and processors, GPUs, or processors. None where there is no whole sum."""
    joules: float | None
    """Of the scope."""
    node_joules: float | None
    """Of whole nodes; None where a node has no counter, or one with a problem. So are the next two."""
    gpu_joules: float | None
    processor_joules: float | None
    """Of processors, with their memory where that is counted."""
    counters: tuple[EnergyCounter, ...] | None
    problems: tuple[str, ...] | None
    """Counters that are missing, or are not to be used, and why."""
    wide: tuple[str, ...] | None
    """Where counters hold more than the run."""


@dataclass(frozen=True, kw_only=True)
class TraceWritten(Counted):
    """The trace of some steps is on the disk, a file a rank."""

    NAME: ClassVar[str] = "trace"
    spans: int | None
    """That the files hold."""
    left_out: int | None
    """Spans that the files have no room for."""
    seconds: float | None
    """That writing them took."""


@dataclass(frozen=True, kw_only=True)
class Memory(Event):
    """Bytes that the run needed: peaks, and what lasts from step to step in the rank that holds the most."""

    NAME: ClassVar[str] = "memory"
    LASTING: ClassVar = (
        "device_parameters_bytes",
        "device_gradients_bytes",
        "device_optimizer_bytes",
        "host_gradients_bytes",
        "host_optimizer_bytes",
        "host_residuals_bytes",
    )
    """What lasts from step to step, on the device and with the host."""
    host_rank_bytes: int | None
    """Peak that was resident in the rank that needed the most."""
    host_bytes: int | None
    """Peak that was resident in all ranks together; what ranks share counts for each of them."""
    device_bytes: int | None = None
    """Peak that PyTorch had allocated on the GPU of the rank that needed the most."""
    device_reserved_bytes: int | None = None
    """Peak that PyTorch held on that GPU."""
    device_buffer_bytes: int | None = None
    """What collectives have of their own on that GPU."""
    device_parameters_bytes: int | None = None
    device_gradients_bytes: int | None = None
    host_gradients_bytes: int | None = None
    device_optimizer_bytes: int | None = None
    """Master weights and moments."""
    host_optimizer_bytes: int | None = None
    host_residuals_bytes: int | None = None
    """What error feedback keeps."""
