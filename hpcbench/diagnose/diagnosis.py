"""Diagnosis of a program: the fraction of exposed communication in a step, and what compression could gain."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.interpose import Groups
from hpcbench.diagnose.calls import MESSAGE, TracedCall
from hpcbench.diagnose.completeness import Gap, find_gaps
from hpcbench.diagnose.gains import CODECS, CPU_SPEED, FREE, GPU_SPEED, Load, WireFormat, break_even_gbit, saved_us
from hpcbench.diagnose.kineto import RankTrace
from hpcbench.diagnose.ranks import check_ranks, keep_common_steps, mark_waiting
from hpcbench.diagnose.spans import Span, clip, merge, share_exposed, subtract, total
from hpcbench.programs.dimensions import dimension_of, is_undescribed

UNKNOWN = "unknown"
WAITING, TRANSFER = "waiting", "transfer"
COMPUTATION = "computation"


@dataclass(frozen=True)
class Kind:
    """A kind of communication call."""

    dimension: str
    """Parallel dimension, or `UNKNOWN` if the traces do not contain it."""
    operation: str
    dtype: str
    description: str
    """Description of the process group."""
    group_size: int | None
    compressible: bool

    @property
    def name(self) -> str:
        """Display name, such as ``DP reduce-scatter (bf16)``."""
        group = f"group {self.description!r}" if self.description else ""
        place = self.dimension if self.dimension != UNKNOWN else group
        return f"{f'{place} ' if place else ''}{self.operation} ({self.dtype})"


@dataclass(frozen=True)
class KindRow:
    """Statistics of one kind of call, per step and averaged over the traced ranks."""

    kind: Kind
    calls: float
    message_bytes: float | None
    """Bytes of the complete vectors per step, or None if the trace does not contain sizes or dtypes."""
    wire_bytes: float | None
    seconds: float
    exposed: float
    """Seconds of exposed communication."""
    waiting: float | None
    """Seconds of waiting for late ranks, or None if unknown."""
    exposed_waiting: float | None
    """Exposed part of the waiting time, or None if unknown."""
    transfer: float
    """Seconds of transfers. Concurrent calls of the same dimension share their time."""
    exposed_transfer: float
    """Exposed part of the transfers in seconds."""

    @property
    def load(self) -> Load:
        """Mean traffic of a rank."""
        return Load(
            operation=self.kind.operation,
            dtype=self.kind.dtype,
            group_size=self.kind.group_size,
            message_bytes=self.message_bytes or 0.0,
            wire_bytes=self.wire_bytes or 0.0,
            transfer_us=1e6 * self.transfer,
            exposed_us=1e6 * self.exposed_transfer,
        )

    @property
    def bandwidth(self) -> float | None:
        """Wire bandwidth during transfers in bytes per second, or None if unknown."""
        return self.wire_bytes / self.transfer if self.wire_bytes and self.transfer > 0 else None


@dataclass(frozen=True)
class Gain:
    """Upper bound on the gain of a codec for one dimension."""

    dimension: str
    codec: str
    factor: float
    """Current step time divided by the shortest possible step time."""
    break_even: float | None
    """Bandwidth per rank in Gbit/s below which the codec saves time, or None if unknown."""


@dataclass(frozen=True)
class Bar:
    """A span in the timeline of a step, in seconds since the start of the step."""

    track: str
    """`COMPUTATION`, or the name of a kind of call."""
    begin: float
    end: float
    exposed: bool = False
    """Whether no computation overlaps with the span."""


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of the traced steps of a program."""

    paths: tuple[Path, ...]
    ranks: tuple[int | None, ...]
    world: int | None
    steps: int | None
    """Number of steps. None if the traces do not contain steps; all values then apply to the whole trace."""
    step_seconds: float
    is_gpu: bool
    computing: float
    """Fraction of the step spent on computation, averaged over ranks."""
    exposed: float
    """Fraction of the step spent on exposed communication, averaged over ranks."""
    has_waiting: bool
    rows: tuple[KindRow, ...]
    gains: tuple[Gain, ...]
    codec_speed: float
    """Assumed codec speed in GB/s of uncompressed data."""
    timeline: tuple[Bar, ...]
    """Timeline of the first rank's last step. The timeline is empty if there are no traces."""
    from_traces: bool = True
    """Whether the diagnosis is based on traces instead of the log of an hpcbench run."""
    gaps: tuple[Gap, ...] = ()
    """Calls that are missing from the traces."""
    link_gbit: float | None = None
    """Link bandwidth of a rank in Gbit/s, or None if the user did not specify it."""

    def by_dimension(self) -> dict[str, float]:
        """Return the exposed fraction of the step for each dimension, in descending order."""
        parts: dict[str, float] = defaultdict(float)
        for row in self.rows:
            parts[row.kind.dimension] += row.exposed / self.step_seconds
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    def gain(self, dimension: str, codec: str) -> Gain | None:
        """Return the gain of a codec for a dimension, or None if the codec cannot encode its messages."""
        return next((gain for gain in self.gains if (gain.dimension, gain.codec) == (dimension, codec)), None)


def diagnose(traces: Sequence[RankTrace], groups: Groups, codec_speed: float | None = None) -> Diagnosis:
    """Diagnose the traced ranks of one job.

    Parameters
    ----------
    groups
        Group dimensions that the user specified.
    codec_speed
        Speed of encoding and decoding, in GB/s of uncompressed data. The default is an assumption.

    Raises
    ------
    UserError
        Two traces are of the same rank or of different jobs, or the traces have no common step.
    """
    check_ranks(traces)
    traces = keep_common_steps(traces)
    has_waiting = mark_waiting(traces)
    is_gpu = any(trace.is_gpu for trace in traces)
    speed = codec_speed or (GPU_SPEED if is_gpu else CPU_SPEED)
    n_steps = len(traces[0].steps) or None
    step_us = sum(trace.window.length for trace in traces) / len(traces) / (n_steps or 1)
    per_rank = [_loads(trace, groups, n_steps or 1) for trace in traces]
    rows = _rows(per_rank, has_waiting)
    return Diagnosis(
        paths=tuple(trace.path for trace in traces),
        ranks=tuple(trace.rank for trace in traces),
        world=traces[0].world,
        steps=n_steps,
        step_seconds=step_us / 1e6,
        is_gpu=is_gpu,
        computing=_mean([total(trace.computation) / trace.window.length for trace in traces]),
        exposed=sum(row.exposed for row in rows) / (step_us / 1e6),
        has_waiting=has_waiting,
        rows=tuple(rows),
        gains=tuple(_gains(per_rank, step_us, speed)),
        codec_speed=speed,
        timeline=tuple(_timeline(traces[0], groups)),
        gaps=tuple(find_gaps(traces)),
    )


def _timeline(trace: RankTrace, groups: Groups) -> Iterator[Bar]:
    """Yield the spans of the rank's last step, or of the whole window if there are no steps."""
    step = trace.steps[max(trace.steps)] if trace.steps else trace.window

    def bars(track: str, spans: Sequence[Span], exposed: bool = False) -> Iterator[Bar]:
        for span in clip(spans, step):
            yield Bar(track, (span.begin - step.begin) / 1e6, (span.end - step.begin) / 1e6, exposed)

    yield from bars(COMPUTATION, trace.computation)
    by_track: dict[str, list[Span]] = defaultdict(list)
    for call in trace.calls:
        by_track[_kind(call, trace.world, groups).name].append(call.span)
    for track, spans in by_track.items():
        busy = merge(spans)
        exposed = subtract(busy, trace.computation)
        yield from bars(track, subtract(busy, exposed))
        yield from bars(track, exposed, exposed=True)


@dataclass
class _RankKind:
    """Statistics of one kind of call on one rank, per step."""

    calls: float = 0.0
    message_bytes: float | None = 0.0
    wire_bytes: float | None = 0.0
    us: float = 0.0
    waiting_us: float = 0.0
    exposed_us: float = 0.0
    exposed_waiting_us: float = 0.0
    transfer_us: float = 0.0
    exposed_transfer_us: float = 0.0


def _loads(trace: RankTrace, groups: Groups, n_steps: int) -> dict[Kind, _RankKind]:
    """Return the traffic of one rank by kind."""
    loads: dict[Kind, _RankKind] = defaultdict(_RankKind)
    labelled = []
    for call in trace.calls:
        kind = _kind(call, trace.world, groups)
        load = loads[kind]
        load.calls += 1 / n_steps
        load.message_bytes = _add(load.message_bytes, call.message_bytes, n_steps)
        load.wire_bytes = _add(load.wire_bytes, call.wire_bytes, n_steps)
        load.us += call.span.length / n_steps
        load.waiting_us += call.waiting.length / n_steps
        labelled += [((kind, TRANSFER), call.transfer), ((kind, WAITING), call.waiting)]
    exposed = share_exposed(labelled, trace.computation)
    for (kind, part), us in exposed.items():
        loads[kind].exposed_us += us / n_steps
        if part == WAITING:
            loads[kind].exposed_waiting_us = us / n_steps
    # Concurrent calls share the link. Faster calls save at most the union of their spans, not the sum.
    for dimension in {kind.dimension for kind in loads}:
        transfers = [
            (kind, span) for (kind, part), span in labelled if part == TRANSFER and kind.dimension == dimension
        ]
        for kind, us in share_exposed(transfers, ()).items():
            loads[kind].transfer_us = us / n_steps
        for kind, us in share_exposed(transfers, trace.computation).items():
            loads[kind].exposed_transfer_us = us / n_steps
    return loads


def _add(total: float | None, value: float | None, n_steps: int) -> float | None:
    return None if total is None or value is None else total + value / n_steps


def _kind(call: TracedCall, world: int | None, groups: Groups) -> Kind:
    group = call.group
    return Kind(
        dimension=_dimension(call, world, groups) or UNKNOWN,
        operation=call.operation,
        dtype=call.dtype or UNKNOWN,
        description=group.description,
        group_size=group.size,
        compressible=call.compressible,
    )


def _dimension(call: TracedCall, world: int | None, groups: Groups) -> str | None:
    group = call.group
    if not group.description:
        return None
    ranks = group.ranks or tuple(range(group.size or 0))
    dimension = dimension_of(group.description, ranks, world or 0, groups)
    # Data parallelism uses no point-to-point messages, so their purpose is unknown in the group of all ranks.
    is_guess = dimension == "DP" and is_undescribed(group.description)
    return None if call.operation == MESSAGE and is_guess else dimension


def _rows(per_rank: Sequence[dict[Kind, _RankKind]], has_waiting: bool) -> list[KindRow]:
    kinds = dict.fromkeys(kind for loads in per_rank for kind in loads)
    rows = []
    for kind in kinds:
        loads = [rank.get(kind, _RankKind()) for rank in per_rank]
        rows.append(
            KindRow(
                kind=kind,
                calls=_mean([load.calls for load in loads]),
                message_bytes=_known_mean([load.message_bytes for load in loads]),
                wire_bytes=_known_mean([load.wire_bytes for load in loads]),
                seconds=_mean([load.us for load in loads]) / 1e6,
                exposed=_mean([load.exposed_us for load in loads]) / 1e6,
                waiting=_mean([load.waiting_us for load in loads]) / 1e6 if has_waiting else None,
                exposed_waiting=_mean([load.exposed_waiting_us for load in loads]) / 1e6 if has_waiting else None,
                transfer=_mean([load.transfer_us for load in loads]) / 1e6,
                exposed_transfer=_mean([load.exposed_transfer_us for load in loads]) / 1e6,
            )
        )
    return sorted(rows, key=lambda row: (-row.exposed, -row.seconds))


def _gains(per_rank: Sequence[dict[Kind, _RankKind]], step_us: float, speed: float) -> list[Gain]:
    """For each dimension and codec, return the gain of the rank that saves most, which may be the slowest rank."""
    dimensions = dict.fromkeys(kind.dimension for loads in per_rank for kind in loads if kind.compressible)
    gains = []
    for dimension in dimensions:
        by_rank = [
            [_load(kind, load) for kind, load in loads.items() if kind.dimension == dimension and kind.compressible]
            for loads in per_rank
        ]
        for codec in (*CODECS, FREE):
            saved = max(sum(saved_us(load, codec, speed) for load in loads) for loads in by_rank)
            gains.append(
                Gain(dimension, codec.name, step_us / max(step_us - saved, 1e-9), _break_even(by_rank, codec, speed))
            )
    return gains


def _load(kind: Kind, load: _RankKind) -> Load:
    return Load(
        operation=kind.operation,
        dtype=kind.dtype,
        group_size=kind.group_size,
        message_bytes=load.message_bytes or 0.0,
        wire_bytes=load.wire_bytes or 0.0,
        transfer_us=load.transfer_us,
        exposed_us=load.exposed_transfer_us,
    )


def _break_even(by_rank: Sequence[Sequence[Load]], codec: WireFormat, speed: float) -> float | None:
    """Return the break-even bandwidth for the traffic with the longest exposed transfers on any rank."""
    loads = [load for loads in by_rank for load in loads if load.wire_bytes]
    if not loads or not codec.has_cost:
        return None
    return break_even_gbit(max(loads, key=lambda load: load.exposed_us), codec, speed)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _known_mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return _mean(numbers) if len(numbers) == len(values) else None
