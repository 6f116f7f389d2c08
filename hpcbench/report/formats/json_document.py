"""The report as JSON: all figures, not rounded, with an object for each run that names its file."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.contract.events import Environment, TrafficTotals
from hpcbench.report.answer import answer
from hpcbench.report.build import Section
from hpcbench.report.compare import Cell, Row
from hpcbench.report.formats.csv_rows import FIGURES, LATER
from hpcbench.report.front import front, simplest
from hpcbench.report.identical import identical
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import Interval
from hpcbench.report.synchrony import Arm, arms
from hpcbench.report.thresholds import judge
from hpcbench.report.titles import title
from hpcbench.report.weaknesses import weakened


def content(sections: Sequence[Section], microbenchmarks: Sequence[Microbenchmark] = ()) -> dict[str, Any]:
    """All figures, not rounded; None for missing ones."""
    return {
        "schema": 4,
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
                        **one.threshold.model_dump(),
                        "run": one.run.run.id,
                        "value": one.value,
                        "kept": one.kept,
                    }
                    for one in judge(cells, submission.plan.thresholds)
                ],
                "cells": [
                    {
                        "cell": cell.values,
                        "title": title(cell)[0],
                        "baseline": cell.baseline,
                        **_schemes(cell),
                        "answer": answer(cell, submission.plan.site),
                        "runs": [_run(run) for run in cell.runs],
                    }
                    for cell in cells
                ],
                "synchrony": [_arm(arm) for arm in arms(cells, submission.plan.criteria.loss_margin)],
            }
            for submission, cells in sections
        ],
        "microbenchmarks": [{**asdict(one), "path": str(one.path)} for one in microbenchmarks],
    }


def _schemes(cell: Cell) -> dict[str, Any]:
    """Return the schemes compared with the baseline and with each other."""
    found, weak = front(cell), weakened(cell)
    return {
        "schemes": [
            {
                **_row(row),
                "kind": row.kind.name.lower(),
                "beaten_by": found.beaten_by(row.scheme),
                "weaknesses": weak.names(row.scheme),
            }
            for row in cell.rows
        ],
        "front": found.unbeaten,
        "simplest": simplest(cell, found),
        "duels": [
            {
                "scheme": duel.scheme,
                "other": duel.other,
                "speed_ratio": as_object(duel.speed),
                "speed": duel.speed.shown if duel.speed else None,
                "loss_difference": as_object(duel.loss),
                "loss": duel.loss.shown if duel.loss else None,
                "beats": duel.beats,
                "beaten": duel.turned().beats,
            }
            for duel in found.duels
        ],
        "weaknesses": {weakness.name: weakness.words for _, weakness in weak.reasons},
        "identical": identical(cell),
    }


def _arm(arm: Arm) -> dict[str, Any]:
    """Return a way of synchronization, compared with the reference's."""
    return {
        "group": arm.group,
        "way": arm.way.words,
        "scheme": arm.scheme,
        "against": arm.against,
        "runs": [run.run.id for run in arm.runs],
        "pairs": arm.pairs,
        "reached": arm.reached,
        "state": arm.state,
        "target_loss": arm.target,
        "basis": arm.basis,
        "time_to_loss_s": arm.seconds,
        "time_to_loss_ratio": as_object(arm.time_ratio),
        "loss_to_reference": as_object(arm.loss),
        "waiting_part": arm.waiting,
        "waiting_change": as_object(arm.waiting_change),
        "staleness": {str(age): part for age, part in arm.parts.items()},
    }


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
        "speed_ratio": as_object(row.speed),
        "speed": row.speed_shown,
        "wire_over_message": row.wire_over_message,
        "loss_valid": row.loss_valid,
        "loss_difference": as_object(row.loss),
        "loss": row.loss_shown,
        "loss_margin": row.loss_margin,
        "verdict": row.verdict,
        "step_seconds": as_object(row.step_seconds),
        "loss_in_time_difference": as_object(row.loss_in_time),
        "loss_in_time": row.loss_in_time.shown if row.loss_in_time else None,
        **{name: figure(row) for name, figure in (FIGURES | LATER).items()},
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
        "dialect": log.dialect if log else None,
        "steps": log.last_step.step if log and log.last_step else 0,
        "planned_steps": log.planned_steps if log else None,
        "throughput_steps": measures.steps,
        "step_seconds": measures.step_seconds,
        "step_seconds_median": measures.step_seconds_median,
        "step_seconds_p95": measures.step_seconds_p95,
        "samples_per_s": measures.samples_per_s,
        "tokens_per_s": measures.tokens_per_s,
        "model_flops_per_rank": measures.model_flops_per_rank,
        "tokens_per_s_per_rank": measures.tokens_per_s_per_rank,
        "hardware_flops_per_rank": measures.hardware_flops_per_rank,
        "unlabelled_flops_per_rank": measures.unlabelled_flops_per_rank,
        "chip": measures.chip,
        "peak_flops_per_rank": measures.peak,
        "mfu": measures.mfu,
        "hfu": measures.hfu,
        "time": asdict(measures.time) if measures.time else None,
        "dimensions": [asdict(one) for one in measures.dimensions],
        "hosts": [asdict(one) for one in measures.hosts],
        "memory": asdict(measures.memory),
        "skipped": measures.skipped,
        "nan_steps": measures.nan_steps,
        "message_bytes": measures.message_bytes,
        "wire_bytes": measures.wire_bytes,
        "loss_train": measures.loss_train,
        "loss_valid": measures.loss_valid,
        "diverged_at": measures.diverged_at,
        "notes": list(measures.notes),
        "settings": run.settings.raw,
        "environment": log.read_event(Environment).raw if log else {},
        "traffic": _traffic(measures),
    }


def _traffic(measures: Measures) -> Any:
    """Return the channels' traffic by the run's own counts, without wire bytes if those are not the network's."""
    log = measures.run.log
    channels = log.read_event(TrafficTotals).raw.get("channels") if log else None
    if measures.wire_bytes != "unknown" or not isinstance(channels, list):
        return channels
    return [{**one, "wire_bytes": "unknown"} if isinstance(one, dict) else one for one in channels]


def as_object(interval: Interval | None) -> dict[str, Any] | None:
    """Return an interval as a JSON object."""
    if interval is None:
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "pairs": interval.pairs}
