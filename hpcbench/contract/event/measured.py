"""Events with measurements over the counted steps: traffic, phases of a step, hosts; and memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class ChannelTraffic(LogObject):
    """Traffic of one channel: sums over all ranks and all counted steps."""

    COUNTS: ClassVar = ("calls", "plain_calls", "message_bytes", "wire_bytes", "coded_bytes", "network_bytes")
    SECONDS: ClassVar = ("encode_s", "decode_s", "transfer_s", "exposed_s", "hidden_s")
    dimension: str | None
    phase: str | None
    kind: str | None
    axis: str | None = None
    """Axis of the tensor grid; left out for traffic that is on no grid axis."""
    codec: str | None
    dtype: str | None = None
    """Number format of the messages; left out where the channel does not fix it."""
    min_bytes: int | None = 0
    """Size below which messages are not encoded."""
    between_nodes: bool | None = False
    """Whether only messages between nodes are encoded."""
    algorithm: str | None
    """The algorithm that the scheme asks for."""
    algorithms: dict[str, Any] | None
    """Number of calls of the first rank, by the algorithm that carried them out."""
    calls: int | None
    """Number of collectives and messages."""
    plain_calls: int | None
    """Number of calls without the channel's codec, because it would lose time or a rule of the scheme excludes it."""
    message_bytes: int | None
    """Bytes before the codec."""
    wire_bytes: int | None
    """Bytes after the codec."""
    coded_bytes: int | None
    """Bytes before the codec of the calls that used it."""
    network_bytes: int | None
    """Wire bytes that left a node. The MPI library's own collectives do not report them and add 0."""
    encode_s: float | None
    decode_s: float | None
    transfer_s: float | None
    """Seconds from the begin to the end of the calls, less the seconds of the codec."""
    exposed_s: float | None
    """Seconds in which the caller waited for the calls."""
    hidden_s: float | None
    """Seconds in which the calls moved data while the caller did other work."""
    sampled_error: float | None
    """Relative error of the sampled values in the 2-norm; None where none was sampled."""


@dataclass(frozen=True, kw_only=True)
class Counted(Event):
    """An event with measurements over the counted steps."""

    from_step: int | None
    to_step: int | None
    """The last counted step."""


@dataclass(frozen=True, kw_only=True)
class TrafficTotals(Counted):
    """All traffic of the run."""

    NAME: ClassVar[str] = "traffic"
    channels: tuple[ChannelTraffic, ...] | None
    host_down_bytes: int | None = None
    """Bytes copied from devices to hosts by all ranks, where optimizer states are offloaded."""
    host_up_bytes: int | None = None
    """Bytes copied from hosts to devices by all ranks, where optimizer states are offloaded."""


@dataclass(frozen=True, kw_only=True)
class ExpertLayer(LogObject):
    """What the experts of one layer got, summed over all ranks and all counted steps."""

    layer: int | None
    """Number of the layer, from 0."""
    tokens: tuple[int, ...] | None
    """Tokens that chose each expert, dropped or not. A token counts once for each expert that it chose."""
    dropped: int | None
    """Choices of tokens that an expert had no place for."""
    balance_loss: float | None
    """Mean of the load-balancing loss, without its weight; 1 where all experts get equally many."""
    z_loss: float | None
    """Mean of the router's z-loss, without its weight."""


@dataclass(frozen=True, kw_only=True)
class Experts(Counted):
    """Tokens of the experts."""

    NAME: ClassVar[str] = "experts"
    layers: tuple[ExpertLayer, ...] | None


@dataclass(frozen=True, kw_only=True)
class RowTraffic(Counted):
    """How the embedding's gradient travelled: by the rows that were touched, or whole."""

    NAME: ClassVar[str] = "sparse_gradients"
    switch_density: float | None
    """The density below which rows are fewer bytes than the whole gradient; above 1, they always are."""
    density: float | None
    """The part of its rows that a replica touched between two reductions, a mean."""
    reductions: int | None
    """Reductions of the embedding's gradient, each part of a split embedding by itself."""
    by_rows: int | None
    """Those that travelled by rows."""
    saved_bytes: int | None
    """Wire bytes of all ranks that the whole gradient would have taken beyond them, indices included."""


@dataclass(frozen=True, kw_only=True)
class StageTimes(LogObject):
    """How the ranks of one pipeline stage spent a step: mean seconds of each activity."""

    stage: int | None
    forward_s: float | None
    backward_s: float | None
    """Seconds in the backward pass, recomputation included."""
    bubble_s: float | None
    """Seconds of waiting for a message of another stage during the passes."""
    reduction_s: float | None
    """Seconds from the last backward pass until the gradients are reduced."""
    optimizer_s: float | None
    """Seconds from the gradient norm until the new weights are gathered."""
    other_s: float | None
    """All other seconds of the step."""
    step_s: float | None
    """Seconds of the whole step: the sum of the parts."""


@dataclass(frozen=True, kw_only=True)
class PhaseTimes(Counted):
    """How the ranks of each stage spent a step."""

    NAME: ClassVar[str] = "phases"
    stages: tuple[StageTimes, ...] | None


_MOST_DIGITS = 15
"""More digits than a number of updates ever has."""


def _is_age(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MOST_DIGITS


@dataclass(frozen=True, kw_only=True)
class StalenessOf(LogObject):
    """How old the weights were that gradients were computed with, on one stage of a pipeline or one server shard."""

    place: int | None
    """Number of the stage or of the shard."""
    versions: int | None = None
    """The most versions of the weights that the stage held at a time; left out for a shard."""
    counts: dict[str, Any] | None
    """Number of gradients by staleness: updates between the weights they were computed with and those they changed."""

    def by_age(self) -> dict[int, int] | None:
        """Return the counts with numbers for keys; None where one is no count, or a staleness no number."""
        known = {age: count for age, count in (self.counts or {}).items() if _is_age(age) and _is_count(count)}
        return {int(age): count for age, count in known.items()} if len(known) == len(self.counts or {}) else None


@dataclass(frozen=True, kw_only=True)
class Staleness(Event):
    """Staleness of all gradients of the run since it began or was continued."""

    NAME: ClassVar[str] = "staleness"
    of: str | None
    """What the places are: ``stage`` or ``shard``."""
    places: tuple[StalenessOf, ...] | None


@dataclass(frozen=True, kw_only=True)
class HostTimes(LogObject):
    """Time that the ranks of one host spent on computing in a step."""

    host: str | None
    ranks: int | None
    compute_s: float | None
    """Seconds without waiting for messages, a mean over the host's ranks."""
    over_peers: float | None
    """The ranks' time divided by the median of their stage, a mean over the host's ranks.

    None where no other host has ranks of the same stage.
    """


@dataclass(frozen=True, kw_only=True)
class Hosts(Counted):
    """Computing time of each host."""

    NAME: ClassVar[str] = "hosts"
    hosts: tuple[HostTimes, ...] | None


@dataclass(frozen=True, kw_only=True)
class MemoryUse(Event):
    """Memory that the run needed in bytes: peaks, and what lasts from step to step in the rank that holds the most."""

    NAME: ClassVar[str] = "memory"
    LASTING: ClassVar = (
        "device_parameters_bytes",
        "device_stashes_bytes",
        "device_gradients_bytes",
        "device_optimizer_bytes",
        "host_gradients_bytes",
        "host_optimizer_bytes",
        "host_residuals_bytes",
    )
    """The fields for memory that lasts from step to step, on the device and on the host."""
    host_rank_bytes: int | None
    """Peak of resident memory in the rank that needed the most."""
    host_bytes: int | None
    """Peak of resident memory, summed over all ranks. Shared memory counts once for each rank."""
    device_bytes: int | None = None
    """Peak of the GPU memory that PyTorch allocated, in the rank that needed the most."""
    device_reserved_bytes: int | None = None
    """Peak of the GPU memory that PyTorch reserved in that rank."""
    device_buffer_bytes: int | None = None
    """GPU memory that collectives use for their own buffers."""
    device_parameters_bytes: int | None = None
    device_stashes_bytes: int | None = None
    """Memory for older versions of the weights, where the schedule has some: the most at a time."""
    device_gradients_bytes: int | None = None
    host_gradients_bytes: int | None = None
    device_optimizer_bytes: int | None = None
    """Memory for master weights and moments."""
    host_optimizer_bytes: int | None = None
    host_residuals_bytes: int | None = None
    """Memory that error feedback needs for its residuals."""
