"""The report for other programs and papers: Markdown, CSV and JSON.

CSV has one row a scheme and cell, with figures unrounded. JSON has the same, and one row a run with the file that each
came from. What went over the wire is `unknown` where the MPI library may have compressed by itself.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from hpcbench import __version__
from hpcbench.collect.lines import printable
from hpcbench.collect.submission import Submission
from hpcbench.report.answer import answer, trouble
from hpcbench.report.compare import Cell, Row
from hpcbench.report.measures import Measures, all_notes, is_gpu
from hpcbench.report.statistics import Interval
from hpcbench.report.table import (
    flops_unit,
    loss,
    loss_interval,
    ratio,
    significant,
    speed_interval,
    title,
)

Section = tuple[Submission, list[Cell]]
"""A submission with its cells compared."""


def markdown(sections: Sequence[Section]) -> str:
    """A title, a table and sentences for each cell."""
    out = []
    for _, cells in sections:
        for cell in cells:
            example = cell.runs[0].run
            unit = flops_unit([row.model_flops_per_rank for row in cell.rows], is_gpu(example))
            what, base = title(cell)
            change = "vs baseline (95 % CI)"
            head = ["scheme", unit.name, "samples/s", change, "wire/message", "loss (valid)", change, "verdict"]
            out += [f"**{_escape(what)}; {_escape(base)}**", "", _line(head)]
            out.append(_line(["---", *["---:"] * 6, "---"]))
            for row in cell.rows:
                figures = [
                    unit.show(row.model_flops_per_rank),
                    significant(row.samples_per_s) + ("\\*" if row.partial else ""),
                    speed_interval(row.speed),
                    ratio(row.wire_over_message),
                    loss(row.loss_valid),
                    loss_interval(row.loss),
                ]
                out.append(_line([_escape(row.scheme), *figures, _escape(row.verdict)]))
            notes = all_notes(cell.runs)
            out += ["", *(f"- {_escape(line)}" for line in (*answer(cell, example.site), *trouble(cell), *notes)), ""]
    return "\n".join(out).rstrip() + "\n"


CSV_COLUMNS = (
    "study",
    "site",
    "cell",
    "scheme",
    "runs",
    "completed",
    "model_flops_per_rank",
    "samples_per_s",
    "tokens_per_s",
    "speed_ratio",
    "speed_ratio_low",
    "speed_ratio_high",
    "speed_pairs",
    "wire_over_message",
    "loss_valid",
    "loss_difference",
    "loss_difference_low",
    "loss_difference_high",
    "loss_pairs",
    "loss_margin",
    "verdict",
)


def as_csv(sections: Sequence[Section]) -> str:
    """One row a scheme and cell; an empty field where there is no figure."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for submission, cells in sections:
        for cell in cells:
            for row in cell.rows:
                writer.writerow(
                    _blank(value)
                    for value in (
                        submission.plan.study,
                        submission.plan.site,
                        json.dumps(cell.values, sort_keys=True, ensure_ascii=False),
                        row.scheme,
                        len(row.runs),
                        row.completed,
                        row.model_flops_per_rank,
                        row.samples_per_s,
                        row.tokens_per_s,
                        *_parts(row.speed),
                        row.wire_over_message,
                        row.loss_valid,
                        *_parts(row.loss),
                        row.loss_margin,
                        row.verdict,
                    )
                )
    return out.getvalue()


def as_json(sections: Sequence[Section]) -> str:
    """Everything, unrounded; null where there is no figure, or one that JSON cannot write (NaN: see the state)."""
    document = {
        "schema": 1,
        "version": __version__,
        "submissions": [
            {
                "root": str(submission.root) if submission.root else None,
                "study": submission.plan.study,
                "site": submission.plan.site,
                "scheduler": submission.plan.scheduler,
                "submitted": submission.plan.time,
                "submitted_by_version": submission.plan.version,
                "criteria": submission.plan.criteria.model_dump(),
                "cells": [
                    {
                        "cell": cell.values,
                        "title": title(cell)[0],
                        "baseline": cell.baseline,
                        "schemes": [_row(row) for row in cell.rows],
                        "answer": answer(cell, submission.plan.site),
                        "runs": [_run(run) for run in cell.runs],
                    }
                    for cell in cells
                ],
            }
            for submission, cells in sections
        ],
    }
    return json.dumps(_finite(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    return {
        "scheme": row.scheme,
        "runs": [run.run.id for run in row.runs],
        "completed": row.completed,
        "diverged": row.diverged,
        "partial": row.partial,
        "model_flops_per_rank": row.model_flops_per_rank,
        "samples_per_s": row.samples_per_s,
        "tokens_per_s": row.tokens_per_s,
        "speed_ratio": _interval(row.speed),
        "speed": row.speed_shown,
        "wire_over_message": row.wire_over_message,
        "loss_valid": row.loss_valid,
        "loss_difference": _interval(row.loss),
        "loss": row.loss_shown,
        "loss_margin": row.loss_margin,
        "verdict": row.verdict,
    }


def _run(measures: Measures) -> dict[str, Any]:
    run = measures.run
    log = run.log
    return {
        "run": run.id,
        "scheme": run.scheme,
        "repeat": run.repeat,
        "pairing": run.pairing,
        "job": run.job,
        "state": run.state,
        "reason": run.verdict.reason,
        "where": run.verdict.where,
        "exit": run.exit,
        "start": run.start,
        "end": run.end,
        "host": run.host,
        "log": str(log.path) if log else None,
        "steps": log.last_step.step if log and log.last_step else 0,
        "planned_steps": log.planned_steps if log else None,
        "throughput_steps": measures.steps,
        "step_seconds": measures.step_seconds,
        "samples_per_s": measures.samples_per_s,
        "tokens_per_s": measures.tokens_per_s,
        "model_flops_per_rank": measures.model_flops_per_rank,
        "message_bytes": measures.message_bytes,
        "wire_bytes": measures.wire_bytes,
        "loss_train": measures.loss_train,
        "loss_valid": measures.loss_valid,
        "diverged_at": measures.diverged_at,
        "notes": list(measures.notes),
        "settings": run.settings,
        "environment": log.data("environment") if log else {},
        "traffic": _traffic(measures),
    }


def _traffic(measures: Measures) -> Any:
    """The channels' traffic as the run counted it, without wire bytes where those are not the network's."""
    log = measures.run.log
    channels = log.data("traffic").get("channels") if log else None
    if measures.wire_bytes != "unknown" or not isinstance(channels, list):
        return channels
    return [{**one, "wire_bytes": "unknown"} if isinstance(one, dict) else one for one in channels]


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "pairs": interval.pairs}


def _parts(interval: Interval | None) -> tuple[float | int | None, ...]:
    if interval is None:
        return (None, None, None, 0)
    return (interval.estimate, interval.low, interval.high, interval.pairs)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _blank(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return "" if value is None else value


def _escape(words: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in words)
    for special in "\\`*_|<>[]":
        clean = clean.replace(special, "\\" + special)
    return clean


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
