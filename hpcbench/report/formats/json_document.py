"""JSON reports: all values, unrounded, and one object per run that names the run's log file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.contract.events import Environment, TrafficTotals
from hpcbench.report.answer import answer
from hpcbench.report.build import Section
from hpcbench.report.columns import follow
from hpcbench.report.compare import Cell
from hpcbench.report.formats.csv_rows import FIGURES, LATER
from hpcbench.report.front import compute_front, find_simplest
from hpcbench.report.identical import find_identical
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import Interval
from hpcbench.report.synchrony import list_arms
from hpcbench.report.thresholds import check_thresholds
from hpcbench.report.titles import write_title
from hpcbench.report.weaknesses import find_weaknesses


def content(sections: Sequence[Section], microbenchmarks: Sequence[Microbenchmark] = ()) -> dict[str, Any]:
    """Return all values, unrounded. Missing values are None."""
    return {
        "schema": 5,
        "submissions": [
            {
                "root": str(submission.root) if submission.root else None,
                "study": submission.plan.study,
                "site": submission.plan.site,
                "scheduler": submission.plan.scheduler or "",
                "submitted": submission.plan.time,
                "submitted_by_version": submission.plan.version,
                "criteria": submission.plan.criteria.model_dump(),
                "thresholds": [
                    {
                        **test.threshold.model_dump(),
                        "runs": [run.run.id for run in test.runs],
                        **read_values(test, {name: name for name in ("value", "interval", "state", "kept")}),
                    }
                    for test in check_thresholds(cells, submission.plan.thresholds)
                ],
                "cells": [
                    {
                        "cell": cell.values,
                        "title": write_title(cell)[0],
                        "baseline": cell.baseline,
                        **_describe_schemes(cell),
                        "answer": answer(cell, submission.plan.site),
                        "runs": [_run(run) for run in cell.runs],
                    }
                    for cell in cells
                ],
                "synchrony": [
                    {**read_values(arm, _ARM), "staleness": {str(age): part for age, part in arm.parts.items()}}
                    for arm in list_arms(cells, submission.plan.criteria.loss_margin)
                ],
            }
            for submission, cells in sections
        ],
        "microbenchmarks": [{**asdict(table), "path": str(table.path)} for table in microbenchmarks],
    }


def _describe_schemes(cell: Cell) -> dict[str, Any]:
    """Return a cell's schemes, with comparisons to the baseline and to each other."""
    pareto, weak = compute_front(cell), find_weaknesses(cell)
    return {
        "schemes": [
            {
                **read_values(row, _SCHEME),
                **{name: figure(row) for name, figure in (FIGURES | LATER).items()},
                "kind": row.kind.name.lower(),
                "beaten_by": pareto.beaten_by(row.scheme),
                "weaknesses": weak.names(row.scheme),
            }
            for row in cell.rows
        ],
        "front": pareto.unbeaten,
        "simplest": find_simplest(cell, pareto),
        "duels": [{**read_values(duel, _DUEL), "beaten": duel.turn().beats} for duel in pareto.duels],
        "weaknesses": {weakness.name: weakness.text for _, weakness in weak.reasons},
        "identical": find_identical(cell),
    }


def read_values(item: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Return attribute values, keyed by their names in the document. Intervals become objects."""
    values = {name: follow(path)(item) for name, path in names.items()}
    return {name: encode_interval(value) if isinstance(value, Interval) else value for name, value in values.items()}


def _map_same_names(*names: str, of: str = "") -> dict[str, str]:
    """Map document names to the paths of attributes that have the same names."""
    return {name: f"{of}{name}" for name in names}


_ARM = {
    "group": "group",
    "way": "way.name",
    **_map_same_names("scheme", "against"),
    "runs": "run_names",
    **_map_same_names("pairs", "reached", "state"),
    "target_loss": "target",
    "basis": "basis",
    "time_to_loss_s": "seconds",
    "time_to_loss_ratio": "time_ratio",
    "loss_to_reference": "loss",
    "waiting_part": "waiting",
    "waiting_change": "waiting_change",
}
"""JSON names of a sync mode's values, mapped to attributes of `Arm`."""
_SCHEME = {
    **_map_same_names("scheme"),
    "runs": "run_names",
    **_map_same_names("completed", "diverged", "partial", "model_flops_per_rank", "samples_per_s", "tokens_per_s"),
    "speed_ratio": "speed",
    "speed": "speed.shown",
    **_map_same_names("wire_over_message", "loss_valid"),
    "loss_difference": "loss",
    "loss": "loss.shown",
    **_map_same_names("loss_margin", "verdict", "step_seconds"),
    "loss_in_time_difference": "loss_in_time",
    "loss_in_time": "loss_in_time.shown",
}
"""JSON names of a scheme's values, mapped to attributes of `SchemeRow`."""
_DUEL = {
    **_map_same_names("scheme", "other"),
    "speed_ratio": "speed",
    "speed": "speed.shown",
    "loss_difference": "loss",
    "loss": "loss.shown",
    "beats": "beats",
}
_RUN = {
    "run": "run.id",
    **_map_same_names("scheme", "repeat", "pairing", "job", "state", of="run."),
    "reason": "run.verdict.reason",
    "where": "run.verdict.where",
    **_map_same_names("exit", "start", "end", "host", of="run."),
    "log": "run.log.path",
    "dialect": "run.log.dialect",
    "steps": "run.log.last_step.step",
    "planned_steps": "run.log.planned_steps",
    "throughput_steps": "steps",
    **_map_same_names("step_seconds", "step_seconds_median", "step_seconds_p95", "step_seconds_p99"),
    **_map_same_names("samples_per_s", "tokens_per_s"),
    **_map_same_names(
        "model_flops_per_rank", "tokens_per_s_per_rank", "hardware_flops_per_rank", "unlabelled_flops_per_rank"
    ),
    "chip": "basis.chip",
    "peak_flops_per_rank": "basis.peak",
    **_map_same_names("mfu", "hfu", "time", "dimensions", "hosts", "memory", "skipped", "nan_steps"),
    **_map_same_names("message_bytes", "wire_bytes", "loss_train", "loss_valid", "diverged_at"),
    "notes": "notes",
    "settings": "run.settings.raw",
}
"""JSON names of a run's values, mapped to attributes of `Measures`."""


def _run(measures: Measures) -> dict[str, Any]:
    log = measures.run.log
    values = read_values(measures, _RUN)
    return values | {
        "log": str(log.path) if log else None,
        "steps": values["steps"] or 0,
        "time": asdict(measures.time) if measures.time else None,
        "dimensions": [asdict(totals) for totals in measures.dimensions],
        "hosts": [asdict(host) for host in measures.hosts],
        "memory": asdict(measures.memory),
        "environment": log.read_event(Environment).raw if log else {},
        "traffic": _read_traffic(measures),
    }


def _read_traffic(measures: Measures) -> Any:
    """Return the channels' traffic as counted by the run. Wire bytes are ``unknown`` if their total is unknown."""
    log = measures.run.log
    channels = log.read_event(TrafficTotals).raw.get("channels") if log else None
    if measures.wire_bytes != "unknown" or not isinstance(channels, list):
        return channels
    return [{**row, "wire_bytes": "unknown"} if isinstance(row, dict) else row for row in channels]


def encode_interval(interval: Interval | None) -> dict[str, Any] | None:
    """Return an interval as a JSON object."""
    if interval is None:
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "pairs": interval.pairs}
