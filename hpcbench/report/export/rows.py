"""Iterators over the rows of the export tables, from runs that have been read."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.steps import Steps
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import (
    Configuration,
    Environment,
    Evaluation,
    PhaseTimes,
    Staleness,
    Start,
    TrafficTotals,
)
from hpcbench.contract.values import limit_integer
from hpcbench.report.basis import read_basis
from hpcbench.report.export import (
    CHANNELS,
    IDENTITY,
    PHASES,
    QUANTITIES,
    RECORDS,
    RUNS,
    STALENESS,
    VERSION,
    ExportTable,
    Row,
    Type,
    Value,
)
from hpcbench.report.lowest_precision import find_lowest_precisions
from hpcbench.report.pace import compute_pace
from hpcbench.report.provenance import strip_device_number
from hpcbench.report.quantities.catalogue import list_exported

_LONGEST = 4096
"""Maximum text length in characters: enough for a path, but not too long to repeat in every row."""
_LONGEST_JSON = 1 << 20


def clean_text(text: str | None) -> str | None:
    """Return text that every file format and terminal can show, or None if the text is missing.

    Unprintable characters, such as line breaks, become U+FFFD.
    """
    if not text:
        return None
    text = text[:_LONGEST]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def locate(path: Path | str | None) -> str | None:
    """Make a path, or ``file:line``, valid from any directory. Return None if the path is missing."""
    return clean_text(str(Path(path).absolute())) if path else None


def as_json(value: Any, longest: int = _LONGEST_JSON) -> str | None:
    """Return a value as ASCII JSON, or None if the value is missing, not representable in JSON, or too long."""
    if value is None:
        return None
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= longest else None


_LONGEST_CELL = 4096
"""Maximum length in characters of the cell's values, which are repeated in every row."""
_OF_THE_NETWORK = ("wire_bytes", "network_bytes")
"""Columns whose values are unknown if the MPI library may have compressed data."""


def rows(table: ExportTable, submission: Submission, run: RunResult) -> Iterator[Row]:
    """Return the rows of a run in a table."""
    return _ROWS[table.name](_identity(submission, run), run)


def _records(identity: Row, run: RunResult) -> Iterator[Row]:
    if run.log is None:
        return
    log, hidden, file = run.log, _hidden(run), locate(run.log.path)
    names = ["steps", *(None if name in hidden else name for name in _QUANTITIES), "line"]
    for step, *values, line in zip(log.steps, *(_aligned(log.steps, name) for name in names), strict=True):
        yield (*identity, "step", None, step, *values, file, line)
    for event in log.events:
        if isinstance(event, Evaluation):
            values_of_event = "evaluation", clean_text(event.split), event.step, log.planned_steps, event.loss
            yield (*identity, *values_of_event, *repeat(None, len(_QUANTITIES) - 1), file, event.line)


_QUANTITIES = tuple(quantity.name for quantity in QUANTITIES)
"""Step quantities. The loss comes first, because it is the only quantity of evaluations."""


def _runs(identity: Row, run: RunResult) -> Iterator[Row]:
    log, settings = run.log or RunLog(Path()), run.settings
    pace = compute_pace(log, read_basis(run, log))
    facts, environment = log.read_event(Configuration), log.read_event(Environment)
    hosts = environment.hosts or ()
    gpus = [gpu for host in hosts for gpu in host.gpus or ()]
    values: dict[str, Value] = {
        "reason": clean_text(run.verdict.reason),
        "reason_source": locate(run.verdict.where),
        "exit_status": limit_integer(run.exit),
        "started": clean_text(run.start),
        "ended": clean_text(run.end),
        "allocation": clean_text(run.allocation),
        "host": clean_text(run.host),
        "hosts": _each(rank.host for rank in log.ranks),
        "devices": _each(strip_device_number(rank.device) for rank in log.ranks if rank.device),
        "processors": _each(host.cpu for host in hosts),
        "gpus": _each(gpu.name for gpu in gpus),
        "drivers": _each(gpu.driver for gpu in gpus),
        "hpcbench": clean_text(log.read_event(Start).version),
        "modules": as_json(environment.modules),
        "model": clean_text(settings.model.name),
        "parameters": facts.parameters,
        "device": clean_text(settings.device),
        "precision": clean_text(settings.work.precision),
        "algorithm": clean_text(settings.scheme.algorithm),
        "codec": clean_text(settings.scheme.default),
        "rules": as_json(settings.scheme.raw.get("rules")),
        "settings": as_json(settings.raw or None),
        "samples_per_s": pace.samples_per_s,
        "tokens_per_s": pace.tokens_per_s,
        "tokens_per_s_per_rank": pace.tokens_per_s_per_rank,
        "step_seconds_mean": pace.step_seconds,
        "step_seconds_p50": pace.step_seconds_median,
        "step_seconds_p95": pace.step_seconds_p95,
        "step_seconds_p99": pace.step_seconds_p99,
        "steps_logged": len(log.steps) if run.log else None,
        "steps_planned": limit_integer(log.planned_steps),
        "file": locate(log.path) if run.log else None,
    }
    values |= {name: clean_text(getattr(environment, name)) for name in _VERSIONS}
    values |= {
        quantity.key: quantity.exported.read(log, quantity.key)
        for quantity in list_exported("runs")
        if quantity.exported
    }
    values |= {name: getattr(facts, name) for name in _FLOPS}
    values |= {name: clean_text(text) for name, text in find_lowest_precisions(run).items()}
    values |= {path.rpartition(".")[2]: attrgetter(path)(settings) for path in _NUMBERS}
    yield (*identity, *(values[name] for name in RUNS.names[len(IDENTITY) :]))


_VERSIONS = ("revision", "mpi", "python", "torch", "numpy", "kernels")
_FLOPS = ("model_flops_per_sample", "hardware_flops_per_sample", "neox_flops_per_sample")
_NUMBERS = (
    *("ranks", "threads"),
    *("model.layers", "model.hidden", "model.heads", "model.vocab"),
    *("layout.dp", "layout.cp", "layout.tp", "layout.pp"),
    *("train.zero", "train.seed", "work.warmup_steps", "work.global_batch", "train.micro_batch", "work.seq_len"),
)
"""Setting paths of the table's integer columns."""


def _staleness(identity: Row, run: RunResult) -> Iterator[Row]:
    event = run.log.event(Staleness) if run.log else None
    if run.log is None or event is None:
        return
    file = locate(run.log.path)
    for place_counts in event.places or ():
        for age, gradients in sorted((place_counts.by_age() or {}).items()):
            yield (
                *identity,
                clean_text(event.of),
                place_counts.place,
                place_counts.versions,
                age,
                gradients,
                file,
                event.line,
            )


def _parts(
    table: ExportTable, kind: type[TrafficTotals | PhaseTimes], parts: str, identity: Row, run: RunResult
) -> Iterator[Row]:
    """Yield one row for each of the `parts` (channels or stages) of an event that covers several steps."""
    event = run.log.event(kind) if run.log else None
    if run.log is None or event is None:
        return
    hidden, file = _hidden(run), locate(run.log.path)
    span = (event.from_step, event.to_step)
    columns = table.columns[len(IDENTITY) + len(span) : -2]
    for part in getattr(event, parts) or ():
        values = (
            _SHOWN[column.type](getattr(part, column.name)) if column.name not in hidden else None for column in columns
        )
        yield (*identity, *span, *values, file, event.line)


_SHOWN: Mapping[Type, Callable[[Any], Value]] = {
    "text": clean_text,
    "json": as_json,
    "integer": lambda value: value,
    "real": lambda value: value,
}
_ROWS: Mapping[str, Callable[[Row, RunResult], Iterator[Row]]] = {
    RECORDS.name: _records,
    RUNS.name: _runs,
    CHANNELS.name: partial(_parts, CHANNELS, TrafficTotals, "channels"),
    PHASES.name: partial(_parts, PHASES, PhaseTimes, "stages"),
    STALENESS.name: _staleness,
}


def _identity(submission: Submission, run: RunResult) -> Row:
    return (
        VERSION,
        locate(submission.root),
        clean_text(run.study),
        clean_text(run.site),
        clean_text(run.log.dialect) if run.log else None,
        clean_text(run.id),
        clean_text(run.job),
        clean_text(run.scheme),
        limit_integer(run.repeat),
        clean_text(run.pairing),
        as_json(run.cell, _LONGEST_CELL),
        run.state,
    )


def _each(texts: Iterable[str | None]) -> str | None:
    """Return the distinct texts, or None if there are none."""
    return as_json(sorted({text for text in texts if text}) or None)


def _hidden(run: RunResult) -> tuple[str, ...]:
    return _OF_THE_NETWORK if run.settings.scheme.hides_traffic else ()


def _aligned(steps: Steps, name: str | None) -> Iterable[Any]:
    """Return a quantity of all steps, with None where missing. Without a name, all values are None."""
    values = steps.column(name) if name else []
    if len(values) == len(steps):
        return values
    values_by_step = {row[0]: row[1] for row in steps.columns("step", name)} if name and values else {}
    return map(values_by_step.get, steps)
