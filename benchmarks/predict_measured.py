"""Measure the accuracy of `hpcbench predict` on this machine, with ten studies of eight ranks on virtual hosts.

    python benchmarks/predict_measured.py [--repeats N] [--out FILE] [--keep DIR | --again DIR [--before DIR]] [--tiny]

First, the machine is measured with `hpcbench bench gemm` on a core, and with `bench network` on the hosts at each rate
and without a limit. A run with another layout serves as the earlier run. Then every step time is predicted twice: from
the tables alone, and with the earlier run. Finally, four schemes of each of the ten studies are measured, on links of
50 Mbit/s to 1 Gbit/s, in rotated order.

Ranks share the cores of this machine, so other programs affect the measurement. Requires Linux, root or user
namespaces, iproute2, and hpcbench[train,local]. The exit status is 2 if a requirement is missing.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from predicted import tables
from predicted.compare import Cell, bytes_differ, drift, order, summary
from predicted.found import Found, measure, read
from predicted.studies import (
    CALIBRATION,
    SHAPE,
    STUDIES,
    TINY_CALIBRATION,
    TINY_SHAPE,
    TINY_STUDIES,
    Shape,
    Study,
)
from provenance import head, provenance
from throttled.start import Task, run_files
from tiny import parse

from hpcbench.contract.run import Run
from hpcbench.errors import UserError
from hpcbench.predict.basis import PredictedValue
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.earlier_runs import Calibration, fit_slowdown, fit_waiting
from hpcbench.predict.machine import Machine, make_cpu_machine
from hpcbench.predict.measured_tables import apply_tables
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.step import StepModel
from hpcbench.predict.workload import Workload, make_workload
from hpcbench.testing.hosts import why_not
from hpcbench.testing.hosts.rates import bits_per_second

BASE = Path(__file__).with_suffix(".yaml")
TINY = ("train.steps=2", "train.warmup_steps=1", "train.seq_len=16", "model.hidden=64", "train.eval_samples=8")


def main() -> int:
    """Measure the machine, predict, measure and compare, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="of each run")
    parser.add_argument("--studies", type=int, default=len(STUDIES), help="number of studies")
    parser.add_argument("--schemes", default="baseline,naive-bf16,naive-int8,zhybrid-16-8", help="joined by commas")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write predicted and measured times")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to keep all that was measured, for --again")
    parser.add_argument("--again", type=Path, metavar="DIR", help="measure nothing: predict what was kept there")
    parser.add_argument("--before", type=Path, metavar="DIR", help="earlier measurement of the same runs")
    options = parse(parser, repeats=1, studies=1, schemes="baseline,naive-int8")
    try:
        compare(options)
    except UserError as error:
        print(f"predict_measured: {error}", file=sys.stderr)
        return 2
    return 0


def compare(options: argparse.Namespace) -> None:
    """Measure (or read stored measurements), predict, and print the comparison."""
    print(*head(Path(__file__)), sep="\n", flush=True)
    schemes, studies = options.schemes.split(","), (TINY_STUDIES if options.tiny else STUDIES)[: options.studies]
    shape, calibration = (TINY_SHAPE, TINY_CALIBRATION) if options.tiny else (SHAPE, CALIBRATION)
    common = [f"matrix.scheme=[{', '.join(schemes)}]", "repeats=1", *(TINY if options.tiny else ())]
    each = shape.ranks_a_host
    runs = {study.name: run_files(BASE, [*common, *study.settings], ranks_a_host=each) for study in studies}
    trial = run_files(BASE, [*common, *calibration.settings], ranks_a_host=each)
    tasks: list[Task] = [(study.rate, run) for study in studies for run in runs[study.name]]
    measurement = get_measurement(options, shape, (calibration.rate, trial[0]), tasks, studies)
    results, peaks = measurement.turns, measurement.peaks
    lesson = _fit_calibration(trial[0], calibration, measurement)
    plain, learned = ([_predict(study, run, measurement, entry) for study in studies for run in runs[study.name]]
                      for entry in (Calibration(), lesson))  # fmt: skip
    baselines = [runs[study.name][0] for study in studies]
    print(f"measured on {measurement.machine}")
    print(
        f"earlier run, {calibration.name}: it computed {lesson.work:.2f} times as long as the tables say, and waited "
        f"{lesson.waiting:.2f} times as long"
    )
    names = [(study.name, run["scheme"]["name"]) for study in studies for run in runs[study.name]]
    times = [tuple(repeat[k]["seconds"] for repeat in results) for k in range(len(tasks))]
    by_tables, by_both = (
        [
            Cell(*name, predicted.value, measured, predicted.low, predicted.high)
            for name, predicted, measured in zip(names, predicted_run, times, strict=True)
        ]
        for predicted_run in (plain, learned)
    )
    for cell in by_both:
        print(
            f"  {cell.study}, {cell.scheme}: predicted {cell.predicted:.3f} s, measured {cell.middle:.3f} s "
            f"({min(cell.measured):.3f} to {max(cell.measured):.3f}), {100 * cell.error:+.1f} %"
        )
    print(f"step time by the tables alone: {summary(cell.error for cell in by_tables)}")
    print(f"step time with what the earlier run taught: {summary(cell.error for cell in by_both)}; goals 8 and 20 %")
    for name, cells in (("the tables alone", by_tables), ("both", by_both)):
        print(f"intervals by {name} hold {sum(cell.held for cell in cells)} of {len(cells)} measured times")
    which = order(by_both)
    share = f"{100 * which.right / which.distinct:.0f} %" if which.distinct else "none"
    print(
        f"order of schemes: {which.pairs} pairs, {which.distinct} told apart by the repeats, "
        f"{which.right} of them right: {share}; goal 90 %"
    )
    if options.before:
        earlier = read(options.before, tasks).turns
        print(drift(times, [tuple(turn[k]["seconds"] for turn in earlier) for k in range(len(tasks))]))
    _compare_bytes([Run.model_validate(run) for _, run in tasks], results[0])
    errors = _compare_memory(baselines, [study.name for study in studies], peaks)
    print(f"peak memory of a rank: {summary(errors)}; goal 10 %")
    if options.out:
        document = {
            "provenance": provenance(Path(__file__)),
            "factor": lesson.work,
            "waiting": lesson.waiting,
            "cells": [
                {"study": cell.study, "scheme": cell.scheme, "predicted": cell.predicted, "measured": cell.measured}
                for cell in by_both
            ],
            "by_tables": [predicted.value for predicted in plain],
            "peaks": dict(zip([study.name for study in studies], peaks, strict=True)),
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def get_measurement(
    options: argparse.Namespace, shape: Shape, trial: Task, tasks: Sequence[Task], studies: Sequence[Study]
) -> Found:
    """Measure, or read an earlier measurement if --again is given."""
    if options.again:
        return read(options.again, tasks)
    if reason := why_not():
        raise UserError(reason)
    with tempfile.TemporaryDirectory() as directory:
        target = options.keep or Path(directory)
        return measure(target, shape, trial, tasks, studies=studies, repeats=options.repeats, tiny=options.tiny)


def _make_machine(study: Study, run: Run, results: Found) -> tuple[Machine, dict[str, CodecSpeed]]:
    """Return the machine, with links that have the study's rate."""
    cores, measured_tables = len(os.sched_getaffinity(0)), results.tables
    bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0)
    bare = replace(bare, shared_cores=float(cores) if cores < run.ranks else None)
    if measured_tables.network and study.rate in results.links:
        codecs = {
            name: measured_tables.network[name]
            for name in ("codecs", "codecs_of_a_core")
            if name in measured_tables.network
        }
        return apply_tables(bare, replace(measured_tables, network=results.links[study.rate] | codecs), "fp32")
    machine, speeds = apply_tables(bare, measured_tables, "fp32")
    fabric = machine.fabric
    times = bits_per_second(study.rate) / bits_per_second(tables.TRIAL)
    core_costs = fabric.core_costs
    if core_costs and measured_tables.cores and times > 1:
        # Up to TRIAL, a link's filter splits the kernel's large segments into packets; faster links pass them
        # # (hosts/rates.py).
        core_costs = replace(core_costs, networks=measured_tables.cores.get("softirq_cores", 0.0))
    fabric = replace(fabric, node_bytes_per_s=fabric.node_bytes_per_s * times, core_costs=core_costs)
    return replace(machine, fabric=fabric), speeds


def _count_ranks_per_node(run: Run) -> int:
    return run.ranks // (TINY_SHAPE if run.ranks == TINY_SHAPE.ranks else SHAPE).hosts


def _read_workload(run: dict[str, Any]) -> Workload:
    predicted_run = Run.model_validate(run)
    return make_workload(predicted_run, ranks_per_node=_count_ranks_per_node(predicted_run))


def _predict(study: Study, run: dict[str, Any], results: Found, lesson: Calibration) -> PredictedValue:
    """Predict the step time in seconds."""
    machine, speeds = lesson.apply(_make_machine(study, Run.model_validate(run), results))
    return StepModel(_read_workload(run), machine, speeds).run().seconds


def _fit_calibration(run: dict[str, Any], study: Study, results: Found) -> Calibration:
    """Calibrate with the earlier run, as `hpcbench predict --measured` does."""
    taught = results.taught
    workload, place = _read_workload(run), _make_machine(study, Run.model_validate(run), results)
    if not place[0].fabric.core_costs:
        parts = StepModel(workload, *place).run().parts
        return Calibration(
            1, work=float(taught["passes"] / (parts["forward"] + parts["backward"] + parts["recompute"]))
        )
    ranks = workload.layout.ranks
    compute_s = taught["seconds"] - sum(entry["exposed_s"] for entry in taught["traffic"].values()) / ranks
    lesson = Calibration(1, work=fit_slowdown(workload, place, compute_s))
    return replace(lesson, waiting=fit_waiting(workload, lesson.apply(place), taught["seconds"], compute_s) or 1.0)


def _compare_bytes(runs: list[Run], results: list[dict[str, Any]]) -> None:
    """Print whether message bytes equal those of the volume model, for the baseline and for other schemes."""
    differ = {run.scheme.name: bytes_differ(run, entry["traffic"]) for run, entry in zip(runs, results, strict=True)}
    plain = [
        bytes_differ(run, entry["traffic"])
        for run, entry in zip(runs, results, strict=True)
        if run.scheme.algorithm == "native"
    ]
    exact = sum(not entry for entry in plain)
    print(f"message bytes of the baseline: exact in {exact} of {len(plain)} runs")
    for wrong in plain:
        for line in wrong:
            print(f"  {line}")
    more = [name for name, lines in differ.items() if lines and name != "baseline"]
    if more:
        print(f"  sent more often within nodes than the volume model counts: {', '.join(more)}")


def _compare_memory(runs: list[dict[str, Any]], names: list[str], peaks: list[list[int]]) -> list[float]:
    """Print and return the errors in predicted memory, on the rank with the highest peak."""
    errors = []
    for run, name, peak in zip(runs, names, peaks, strict=True):
        predicted = predict_memory(_read_workload(run), None)
        errors.append(predicted.bytes / max(peak) - 1)
        print(
            f"  {name}: predicted {predicted.bytes / 2**20:.1f} MiB ({predicted.peak}), "
            f"traced {max(peak) / 2**20:.1f} MiB, {100 * errors[-1]:+.1f} %"
        )
    return errors


if __name__ == "__main__":
    sys.exit(main())
