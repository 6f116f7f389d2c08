"""Events with measurements over the counted steps: traffic, step phases, hosts, and memory."""

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
    """Tensor-grid axis. The field is omitted for traffic that uses no grid axis."""
    codec: str | None
    dtype: str | None = None
    """Number format of the messages. The field is omitted if the channel does not fix the format."""
    min_bytes: int | None = 0
    """Size below which messages are not encoded."""
    between_nodes: bool | None = False
    """Whether only messages between nodes are encoded."""
    algorithm: str | None
    """Algorithm that the scheme requests."""
    algorithms: dict[str, Any] | None
    """Number of calls on the first rank, keyed by the algorithm that was used."""
    calls: int | None
    """Number of collectives and messages."""
    plain_calls: int | None
    """Number of calls that did not use the channel's codec, because it would be slower or a rule excludes it."""
    message_bytes: int | None
    """Bytes before the codec."""
    wire_bytes: int | None
    """Bytes after the codec."""
    coded_bytes: int | None
    """Bytes before the codec, for encoded calls only."""
    network_bytes: int | None
    """Wire bytes that left a node. The MPI library's own collectives do not report these bytes, which count as 0."""
    encode_s: float | None
    decode_s: float | None
    transfer_s: float | None
    """Duration of the calls in seconds, without codec time."""
    exposed_s: float | None
    """Seconds that the caller spent waiting for the calls."""
    hidden_s: float | None
    """Seconds that the calls spent moving data while the caller did other work."""
    sampled_error: float | None
    """Relative error of the sampled values in the 2-norm, or None if no values were sampled."""


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
    """Bytes copied from devices to hosts by all ranks, if optimizer states are offloaded."""
    host_up_bytes: int | None = None
    """Bytes copied from hosts to devices by all ranks, if optimizer states are offloaded."""


@dataclass(frozen=True, kw_only=True)
class ExpertLayer(LogObject):
    """Tokens of the experts of one layer, summed over all ranks and all counted steps."""

    layer: int | None
    """Number of the layer, from 0."""
    tokens: tuple[int, ...] | None
    """Tokens routed to each expert, including dropped tokens. A token counts once for each of its experts."""
    dropped: int | None
    """Number of token assignments that exceeded an expert's capacity."""
    balance_loss: float | None
    """Mean of the unweighted load-balancing loss. The value is 1 if all experts receive the same number of
    tokens."""
    z_loss: float | None
    """Mean of the router's unweighted z-loss."""


@dataclass(frozen=True, kw_only=True)
class ExpertTokens(Counted):
    """Tokens of the experts."""

    NAME: ClassVar[str] = "experts"
    layers: tuple[ExpertLayer, ...] | None


@dataclass(frozen=True, kw_only=True)
class RowTraffic(Counted):
    """Traffic of the embedding's gradient, which is sent either completely or as the touched rows."""

    NAME: ClassVar[str] = "sparse_gradients"
    switch_density: float | None
    """Density below which rows take fewer bytes than the whole gradient.

    If the value exceeds 1, rows always take fewer bytes.
    """
    density: float | None
    """Mean fraction of the rows that a replica touched between two reductions."""
    reductions: int | None
    """Number of reductions of the embedding's gradient. Each part of a split embedding counts separately."""
    by_rows: int | None
    """Number of reductions that were sent as rows."""
    saved_bytes: int | None
    """Wire bytes that all ranks saved compared with sending the whole gradient. Rows include their indices."""


@dataclass(frozen=True, kw_only=True)
class StageTimes(LogObject):
    """Mean seconds of each activity in a step, over the ranks of one pipeline stage."""

    stage: int | None
    forward_s: float | None
    backward_s: float | None
    """Seconds in the backward pass, including recomputation."""
    bubble_s: float | None
    """Seconds spent waiting for a message of another stage during the passes."""
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
    """Time of each activity in a step, by pipeline stage."""

    NAME: ClassVar[str] = "phases"
    stages: tuple[StageTimes, ...] | None


_MOST_DIGITS = 15
"""Maximum number of digits that a staleness or a count may have in a log. Actual values are far below this limit."""


def _is_age(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MOST_DIGITS


@dataclass(frozen=True, kw_only=True)
class StalenessOf(LogObject):
    """Staleness of the gradients on one pipeline stage or one server shard."""

    place: int | None
    """Number of the stage or shard."""
    versions: int | None = None
    """Largest number of weight versions that the stage held at a time. The number is omitted for a shard."""
    counts: dict[str, Any] | None
    """Number of gradients, keyed by staleness.

    Staleness is the number of updates between the weights used to compute a gradient and the weights that the gradient
    updated.
    """

    def by_age(self) -> dict[int, int] | None:
        """Return the counts with numbers as keys, or None if a key or a count is not a valid number."""
        valid = {age: count for age, count in (self.counts or {}).items() if _is_age(age) and _is_count(count)}
        return {int(age): count for age, count in valid.items()} if len(valid) == len(self.counts or {}) else None


@dataclass(frozen=True, kw_only=True)
class Staleness(Event):
    """Staleness of all gradients since the run began or continued from a checkpoint."""

    NAME: ClassVar[str] = "staleness"
    of: str | None
    """Kind of location: ``stage`` or ``shard``."""
    places: tuple[StalenessOf, ...] | None


@dataclass(frozen=True, kw_only=True)
class HostTimes(LogObject):
    """Computing time of the ranks of one host in a step."""

    host: str | None
    ranks: int | None
    compute_s: float | None
    """Seconds of a step, excluding waits for messages, averaged over the host's ranks."""
    over_peers: float | None
    """Time of a rank divided by the median of its stage, averaged over the host's ranks.

    The value is None if no other host has ranks of the same stage.
    """


@dataclass(frozen=True, kw_only=True)
class ComputingTimes(Counted):
    """Computing time of each host."""

    NAME: ClassVar[str] = "hosts"
    hosts: tuple[HostTimes, ...] | None


@dataclass(frozen=True, kw_only=True)
class MemoryUse(Event):
    """Memory of the run in bytes: peaks, and the persistent memory of the rank that holds the most."""

    NAME: ClassVar[str] = "memory"
    LASTING: ClassVar = (
        "device_parameters_bytes",
        "device_stashes_bytes",
        "device_gradients_bytes",
        "device_optimizer_bytes",
        "device_residuals_bytes",
        "host_gradients_bytes",
        "host_optimizer_bytes",
        "host_residuals_bytes",
    )
    """Fields for memory that is kept between steps, on the device and on the host."""
    host_rank_bytes: int | None
    """Peak resident memory of the rank that uses the most."""
    host_bytes: int | None
    """Peak resident memory, summed over all ranks. Shared memory counts once for each rank."""
    device_bytes: int | None = None
    """Peak GPU memory allocated by PyTorch, on the rank with the highest peak."""
    device_reserved_bytes: int | None = None
    """Peak GPU memory reserved by PyTorch on the rank with the most allocated memory."""
    device_buffer_bytes: int | None = None
    """GPU memory for the buffers of collectives."""
    device_parameters_bytes: int | None = None
    device_stashes_bytes: int | None = None
    """Peak memory for older versions of the weights, if the schedule keeps such versions."""
    device_gradients_bytes: int | None = None
    host_gradients_bytes: int | None = None
    device_optimizer_bytes: int | None = None
    """Memory for master weights and moments."""
    host_optimizer_bytes: int | None = None
    device_residuals_bytes: int | None = None
    """GPU memory for the residuals of error feedback."""
    host_residuals_bytes: int | None = None
    """Memory for residuals that are not in GPU memory."""
