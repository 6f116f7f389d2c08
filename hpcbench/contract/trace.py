"""Trace files with the activities of ranks in some steps. Each rank writes one file in the Chrome trace format.

Perfetto and chrome://tracing can open the files. Times are measured with the rank's clock. Each file also contains
clock offsets relative to the first rank, measured before and after the traced steps. Reports use the offsets to convert
all times to one clock.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_integer, get_number, get_text
from hpcbench.errors import UserError

DIRECTORY = "trace"
"""Directory of the trace files, relative to the run's directory."""
STEPS, CODEC = "steps", "codec"
"""Tracks in addition to the channel tracks: the phases of a step, and the codec."""
STEP, WAIT = "step", "wait"
"""Names of spans in addition to the phases: a whole step, and waiting for a channel's messages."""
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """An activity with its start and end in seconds of the rank's clock."""

    track: str
    """`STEPS`, `CODEC`, or the name of a channel for a span of one of its calls."""
    name: str
    begin: float
    end: float
    step: int
    about: Mapping[str, Any]
    """Further details, such as the bytes of a call, or the channel whose messages were awaited."""


@dataclass(frozen=True)
class ClockComparison:
    """A comparison of a rank's clock with the first rank's clock."""

    at: float
    """Time of the comparison, in seconds of the rank's clock."""
    ahead: float
    """Seconds that the rank's clock is ahead of the first rank's clock."""
    error: float
    """Upper bound on the error of `ahead` in seconds: half of the shortest round trip."""


@dataclass(frozen=True)
class StepTrace:
    """The trace of a rank."""

    rank: int
    host: str
    before: ClockComparison
    after: ClockComparison
    spans: tuple[TraceSpan, ...]
    left_out: int = 0
    """Number of spans that were omitted because the trace had reached its size limit."""

    def ahead(self, at: float) -> float:
        """Interpolate by how many seconds the rank's clock is ahead of the first rank's clock at a given time."""
        between = self.after.at - self.before.at
        part = (at - self.before.at) / between if between > 0 else 0.0
        return self.before.ahead + part * (self.after.ahead - self.before.ahead)

    @property
    def error(self) -> float:
        """Upper bound, in seconds, on the error of times converted to the first rank's clock."""
        return max(self.before.error, self.after.error)

    def steps(self) -> list[int]:
        """Return the numbers of the traced steps."""
        return sorted({span.step for span in self.spans if span.name == STEP})


def name_file(rank: int | str) -> str:
    """Return the name of a rank's file; ``*`` matches any rank."""
    return f"rank-{rank}.json"


def write_trace(directory: Path, trace: StepTrace) -> None:
    """Write a rank's file. The directory must exist."""
    content = {
        "displayTimeUnit": "ms",
        "otherData": {
            "rank": trace.rank,
            "host": trace.host,
            "left_out": trace.left_out,
            "before": vars(trace.before),
            "after": vars(trace.after),
        },
        "traceEvents": list_events(trace, lambda at: at),
    }
    (directory / name_file(trace.rank)).write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


def merge_traces(traces: Iterable[StepTrace]) -> dict[str, Any]:
    """Merge the traces of all ranks into one object of the Chrome trace format.

    Each rank is a process of the trace. Times are on the first rank's clock and start at 0.
    """
    by_rank = sorted(traces, key=lambda trace: trace.rank)
    start = min((span.begin - trace.ahead(span.begin) for trace in by_rank for span in trace.spans), default=0.0)
    events = [
        event
        for trace in by_rank
        for event in list_events(trace, lambda at, trace=trace: at - trace.ahead(at) - start)  # type: ignore[misc]
    ]
    about = {
        "ranks": len(by_rank),
        "left_out": sum(trace.left_out for trace in by_rank),
        "clock_error_us": round(max((trace.error for trace in by_rank), default=0.0) * _MICRO, 3),
    }
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}


def list_events(trace: StepTrace, on_clock: Callable[[float], float]) -> list[dict[str, Any]]:
    """Return the rank's spans as complete events, after metadata events with the names of its tracks.

    Parameters
    ----------
    on_clock
        Function that converts a time on the rank's clock to the time to write, in seconds.
    """
    rank, numbers = trace.rank, _Tracks()
    events = []
    for span in sorted(trace.spans, key=lambda span: (span.begin, -span.end)):
        begin = on_clock(span.begin)
        events.append(
            {
                "name": span.name,
                "cat": span.track,
                "ph": "X",
                "ts": round(begin * _MICRO, 3),
                "dur": round((on_clock(span.end) - begin) * _MICRO, 3),
                "pid": rank,
                "tid": numbers.of(span),
                "args": {"step": span.step, **span.about},
            }
        )
    names = [_named("process_name", rank, 0, f"rank {rank} on {trace.host}")]
    names += [_named("thread_name", rank, tid, name) for tid, name in numbers.names.items()]
    return names + events


class _Tracks:
    """Lanes of the tracks. Overlapping calls of a channel get separate lanes, because viewers require nested spans."""

    def __init__(self) -> None:
        self._lanes: dict[str, list[tuple[int, float]]] = {}
        self.names: dict[int, str] = {}

    def of(self, span: TraceSpan) -> int:
        """Return the number of the span's lane. Spans must be passed in order of their start times."""
        if span.track in (STEPS, CODEC):
            tid = 0 if span.track == STEPS else 1
            self.names[tid] = span.track
            return tid
        lanes = self._lanes.setdefault(span.track, [])
        for i, (tid, end) in enumerate(lanes):
            if end <= span.begin:
                lanes[i] = (tid, span.end)
                return tid
        tid = 2 + sum(map(len, self._lanes.values()))
        lanes.append((tid, span.end))
        self.names[tid] = span.track if len(lanes) == 1 else f"{span.track} ({len(lanes)})"
        return tid


def _named(what: str, rank: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": tid, "args": {"name": name}}


def read(path: Path) -> StepTrace:
    """Read a rank's file.

    Raises
    ------
    UserError
        The file cannot be read, or is not a trace.
    """
    where = make_printable(str(path))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(
            f"{where}: not a complete trace, because the run ended while it was written: trace the run again"
        ) from None
    about = data.get("otherData") if isinstance(data, dict) else None
    listed = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(about, dict) or not isinstance(listed, list):
        raise UserError(f"{where}: not the trace of a rank: give the directory of a run with train.trace")
    rank, host = get_integer(about, "rank"), get_text(about, "host")
    before, after = _comparison(about.get("before")), _comparison(about.get("after"))
    if rank is None or host is None or before is None or after is None:
        raise UserError(f"{where}: otherData: has no rank, host or clock comparisons: trace the run again")
    spans = tuple(span for event in listed if isinstance(event, dict) and (span := _span(event)))
    return StepTrace(rank, host, before, after, spans, get_integer(about, "left_out") or 0)


def _comparison(data: Any) -> ClockComparison | None:
    at, ahead, error = (get_number(data, key) for key in ("at", "ahead", "error"))
    return None if at is None or ahead is None or error is None else ClockComparison(at, ahead, error)


def _span(data: Mapping[str, Any]) -> TraceSpan | None:
    track, name, about = get_text(data, "cat"), get_text(data, "name"), data.get("args")
    begin, seconds = get_number(data, "ts"), get_number(data, "dur")
    if not isinstance(about, dict) or track is None or name is None or begin is None or seconds is None:
        return None
    step = get_integer(about, "step")
    if not isfinite(begin) or not isfinite(seconds):
        return None
    details = {key: value for key, value in about.items() if key != "step"}
    return None if step is None else TraceSpan(track, name, begin / _MICRO, (begin + seconds) / _MICRO, step, details)
