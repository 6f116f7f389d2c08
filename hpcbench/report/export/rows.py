"""The rows of the schema's tables, one after another, from runs that have been read."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.steps import Steps
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import (
    ChannelTraffic,
    Configuration,
    Environment,
    Evaluation,
    PhaseTimes,
    StageTimes,
    Staleness,
    Start,
    TrafficTotals,
)
from hpcbench.contract.values import limit_integer
from hpcbench.report.export import (
    CHANNELS,
    IDENTITY,
    PHASES,
    QUANTITIES,
    RECORDS,
    RUNS,
    STALENESS,
    VERSION,
    Row,
    Table,
    Type,
    Value,
)
from hpcbench.report.provenance import device_name
from hpcbench.report.quantities.catalogue import list_exported

_LONGEST = 4096
"""Most characters of a text, which are enough for a path. It stands in every row and must not be endless."""
_LONGEST_JSON = 1 << 20


def plain(words: str | None) -> str | None:
    """Text that every file format can hold and every terminal can show; None if there is none.

    Each character that cannot be printed, such as a line end, becomes U+FFFD.
    """
    if not words:
        return None
    words = words[:_LONGEST]
    return words if words.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in words)


def place(path: Path | str | None) -> str | None:
    """Return a path, or ``file:line``, that is valid from any directory; None if there is none."""
    return plain(str(Path(path).absolute())) if path else None


def as_json(value: Any, longest: int = _LONGEST_JSON) -> str | None:
    """Return a value as JSON in ASCII; None if there is none, if JSON cannot hold it, or if it is too long."""
    if value is None:
        return None
    try:
        words = json.dumps(value, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return words if len(words) <= longest else None


_LONGEST_CELL = 4096
"""Most characters of the cell's values, which stand in every row."""
_OF_THE_NETWORK = ("wire_bytes", "network_bytes")
"""Columns that are not known if the MPI library may have compressed by itself."""


def rows(table: Table, submission: Submission, run: RunResult) -> Iterator[Row]:
    """Return a run's rows of a table."""
    identity = _identity(submission, run)
    return _ROWS[table.name](identity, run)


def _records(identity: Row, run: RunResult) -> Iterator[Row]:
    if run.log is None:
        return
    log, hidden, file = run.log, _hidden(run), place(run.log.path)
    names = ["steps", *(None if name in hidden else name for name in _QUANTITIES), "line"]
    for step, *values, line in zip(log.steps, *(_aligned(log.steps, name) for name in names), strict=True):
        yield (*identity, "step", None, step, *values, file, line)
    for event in log.events:
        if isinstance(event, Evaluation):
            said = "evaluation", plain(event.split), event.step, log.planned_steps, event.loss
            yield (*identity, *said, *repeat(None, len(_QUANTITIES) - 1), file, event.line)


_QUANTITIES = tuple(one.name for one in QUANTITIES)
"""Quantities of a step. The loss comes first, because an evaluation has only that."""


def _runs(identity: Row, run: RunResult) -> Iterator[Row]:
    log, settings = run.log or RunLog(Path()), run.settings
    facts, environment = log.read_event(Configuration), log.read_event(Environment)
    hosts = environment.hosts or ()
    gpus = [gpu for host in hosts for gpu in host.gpus or ()]
    found: dict[str, Value] = {
        "reason": plain(run.verdict.reason),
        "reason_source": place(run.verdict.where),
        "exit_status": limit_integer(run.exit),
        "started": plain(run.start),
        "ended": plain(run.end),
        "allocation": plain(run.allocation),
        "host": plain(run.host),
        "hosts": _each(rank.host for rank in log.ranks),
        "devices": _each(device_name(rank.device) for rank in log.ranks if rank.device),
        "processors": _each(host.cpu for host in hosts),
        "gpus": _each(gpu.name for gpu in gpus),
        "drivers": _each(gpu.driver for gpu in gpus),
        "hpcbench": plain(log.read_event(Start).version),
        "modules": as_json(environment.modules),
        "model": plain(settings.model.name),
        "parameters": facts.parameters,
        "device": plain(settings.device),
        "precision": plain(settings.train.precision),
        "algorithm": plain(settings.scheme.algorithm),
        "codec": plain(settings.scheme.default),
        "rules": as_json(settings.scheme.raw.get("rules")),
        "settings": as_json(settings.raw or None),
        "steps_logged": len(log.steps) if run.log else None,
        "steps_planned": limit_integer(log.planned_steps),
        "file": place(log.path) if run.log else None,
    }
    found |= {name: plain(getattr(environment, name)) for name in _VERSIONS}
    found |= {one.key: one.exported.read(log, one.key) for one in list_exported("runs") if one.exported}
    found |= {name: getattr(facts, name) for name in _FLOPS}
    found |= {path.rpartition(".")[2]: attrgetter(path)(settings) for path in _NUMBERS}
    yield (*identity, *(found[name] for name in RUNS.names[len(IDENTITY) :]))


_VERSIONS = ("revision", "mpi", "python", "torch", "numpy", "kernels")
_FLOPS = ("model_flops_per_sample", "hardware_flops_per_sample", "neox_flops_per_sample")
_NUMBERS = (
    *("ranks", "threads"),
    *("model.layers", "model.hidden", "model.heads", "model.vocab"),
    *("layout.dp", "layout.cp", "layout.tp", "layout.pp"),
    *("train.zero", "train.seed", "train.warmup_steps", "train.global_batch", "train.micro_batch", "train.seq_len"),
)
"""Places of the table's whole numbers in a run's settings."""


def _channels(identity: Row, run: RunResult) -> Iterator[Row]:
    event = run.log.event(TrafficTotals) if run.log else None
    return _parts(CHANNELS, identity, run, event, event.channels if event else None)


def _phases(identity: Row, run: RunResult) -> Iterator[Row]:
    event = run.log.event(PhaseTimes) if run.log else None
    return _parts(PHASES, identity, run, event, event.stages if event else None)


def _staleness(identity: Row, run: RunResult) -> Iterator[Row]:
    event = run.log.event(Staleness) if run.log else None
    if run.log is None or event is None:
        return
    file = place(run.log.path)
    for own in event.places or ():
        for age, gradients in sorted((own.by_age() or {}).items()):
            yield (*identity, plain(event.of), own.place, own.versions, age, gradients, file, event.line)


def _parts(
    table: Table,
    identity: Row,
    run: RunResult,
    event: TrafficTotals | PhaseTimes | None,
    parts: Iterable[ChannelTraffic | StageTimes] | None,
) -> Iterator[Row]:
    """Return a row for each part of an event about some steps."""
    if run.log is None or event is None:
        return
    hidden, file = _hidden(run), place(run.log.path)
    span = (event.from_step, event.to_step)
    columns = table.columns[len(IDENTITY) + len(span) : -2]
    for part in parts or ():
        values = (_SHOWN[one.type](getattr(part, one.name)) if one.name not in hidden else None for one in columns)
        yield (*identity, *span, *values, file, event.line)


_SHOWN: Mapping[Type, Callable[[Any], Value]] = {
    "text": plain,
    "json": as_json,
    "integer": lambda value: value,
    "real": lambda value: value,
}
_ROWS: Mapping[str, Callable[[Row, RunResult], Iterator[Row]]] = {
    RECORDS.name: _records,
    RUNS.name: _runs,
    CHANNELS.name: _channels,
    PHASES.name: _phases,
    STALENESS.name: _staleness,
}


def _identity(submission: Submission, run: RunResult) -> Row:
    return (
        VERSION,
        place(submission.root),
        plain(run.study),
        plain(run.site),
        plain(run.log.dialect) if run.log else None,
        plain(run.id),
        plain(run.job),
        plain(run.scheme),
        limit_integer(run.repeat),
        plain(run.pairing),
        as_json(run.cell, _LONGEST_CELL),
        run.state,
    )


def _each(found: Iterable[str | None]) -> str | None:
    """Return the different texts; None if there is none."""
    return as_json(sorted({words for words in found if words}) or None)


def _hidden(run: RunResult) -> tuple[str, ...]:
    return _OF_THE_NETWORK if run.settings.scheme.variables else ()


def _aligned(steps: Steps, name: str | None) -> Iterable[Any]:
    """Return a quantity of all steps, with None for steps that lack it; without a name, None for all steps."""
    values = steps.column(name) if name else []
    if len(values) == len(steps):
        return values
    known = {row[0]: row[1] for row in steps.columns("step", name)} if name and values else {}
    return map(known.get, steps)
