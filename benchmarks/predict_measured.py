"""How near `hpcbench predict` comes to what is measured here: ten studies of eight ranks on virtual hosts.

    python benchmarks/predict_measured.py [--repeats N] [--out FILE] [--keep DIR | --again DIR [--before DIR]] [--tiny]

First the machine is measured (`hpcbench bench gemm` on a core, `bench network` on the hosts at each rate and without a
limit) and one run in a layout of its own, which is what earlier runs teach. Then every step time is predicted, twice:
by the tables alone, and with what that run taught. Then all is measured: four schemes of each of the ten studies, on
links of 50 Mbit/s to 1 Gbit/s, in rotated order. Printed are the errors of the step time, how often the order of two
schemes was right where the repeats tell them apart, whether message bytes are exact, and the peak memory of a rank by
traced allocations.

Ranks share the cores of this machine: what else runs here is measured, too. Needs Linux, root or user namespaces,
iproute2, and hpcbench[train,local]. Exit status 2 if something is missing.
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
from hpcbench.predict.basis import Estimate
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
    """Measure the machine, predict, measure and compare; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="of each run")
    parser.add_argument("--studies", type=int, default=len(STUDIES), help="so many of the ten")
    parser.add_argument("--schemes", default="baseline,naive-bf16,naive-int8,zhybrid-16-8", help="joined by commas")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write predicted and measured times")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to keep all that was measured, for --again")
    parser.add_argument("--again", type=Path, metavar="DIR", help="measure nothing: predict what was kept there")
    parser.add_argument("--before", type=Path, metavar="DIR", help="kept here earlier: how alike runs are")
    options = parse(parser, repeats=1, studies=1, schemes="baseline,naive-int8")
    try:
        compare(options)
    except UserError as error:
        print(f"predict_measured: {error}", file=sys.stderr)
        return 2
    return 0


def compare(options: argparse.Namespace) -> None:
    """All of it."""
    print(*head(Path(__file__)), sep="\n", flush=True)
    schemes, studies = options.schemes.split(","), (TINY_STUDIES if options.tiny else STUDIES)[: options.studies]
    shape, calibration = (TINY_SHAPE, TINY_CALIBRATION) if options.tiny else (SHAPE, CALIBRATION)
    common = [f"matrix.scheme=[{', '.join(schemes)}]", "repeats=1", *(TINY if options.tiny else ())]
    each = shape.ranks_a_host
    runs = {study.name: run_files(BASE, [*common, *study.settings], ranks_a_host=each) for study in studies}
    trial = run_files(BASE, [*common, *calibration.settings], ranks_a_host=each)
    tasks: list[Task] = [(study.rate, run) for study in studies for run in runs[study.name]]
    measurement = _found(options, shape, (calibration.rate, trial[0]), tasks, studies)
    found, peaks = measurement.turns, measurement.peaks
    lesson = _lesson(trial[0], calibration, measurement)
    plain, learned = ([_predict(study, run, measurement, one) for study in studies for run in runs[study.name]]
                      for one in (Calibration(), lesson))  # fmt: skip
    baselines = [runs[study.name][0] for study in studies]
    print(f"measured on {measurement.machine}")
    print(
        f"earlier run, {calibration.name}: it computed {lesson.work:.2f} times as long as the tables say, and waited "
        f"{lesson.waiting:.2f} times as long"
    )
    names = [(study.name, run["scheme"]["name"]) for study in studies for run in runs[study.name]]
    times = [tuple(repeat[k]["seconds"] for repeat in found) for k in range(len(tasks))]
    by_tables, by_both = (
        [
            Cell(*name, predicted.value, measured, predicted.low, predicted.high)
            for name, predicted, measured in zip(names, made, times, strict=True)
        ]
        for made in (plain, learned)
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
    share = f"{100 * which.right / which.told:.0f} %" if which.told else "none"
    print(
        f"order of schemes: {which.pairs} pairs, {which.told} told apart by the repeats, "
        f"{which.right} of them right: {share}; goal 90 %"
    )
    if options.before:
        earlier = read(options.before, tasks).turns
        print(drift(times, [tuple(turn[k]["seconds"] for turn in earlier) for k in range(len(tasks))]))
    _bytes([Run.model_validate(run) for _, run in tasks], found[0])
    errors = _memory(baselines, [study.name for study in studies], peaks)
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


def _found(
    options: argparse.Namespace, shape: Shape, trial: Task, tasks: Sequence[Task], studies: Sequence[Study]
) -> Found:
    """What was measured: now, or with --again before."""
    if options.again:
        return read(options.again, tasks)
    if reason := why_not():
        raise UserError(reason)
    with tempfile.TemporaryDirectory() as directory:
        kept = options.keep or Path(directory)
        return measure(kept, shape, trial, tasks, studies=studies, repeats=options.repeats, tiny=options.tiny)


def _machine(study: Study, run: Run, found: Found) -> tuple[Machine, dict[str, CodecSpeed]]:
    """The machine with links of the study's rate."""
    cores, known = len(os.sched_getaffinity(0)), found.known
    bare = make_cpu_machine("hosts", cores=1, ranks_per_node=_per_node(run), memory_bytes=None, node_gbit=1.0)
    bare = replace(bare, shared_cores=float(cores) if cores < run.ranks else None)
    if known.network and study.rate in found.links:
        codecs = {name: known.network[name] for name in ("codecs", "codecs_of_a_core") if name in known.network}
        return apply_tables(bare, replace(known, network=found.links[study.rate] | codecs), "fp32")
    machine, speeds = apply_tables(bare, known, "fp32")
    fabric = machine.fabric
    times = bits_per_second(study.rate) / bits_per_second(tables.TRIAL)
    core_costs = fabric.core_costs
    if core_costs and known.cores and times > 1:
        # up to TRIAL a link's filter cuts what the kernel sends into packets, faster ones let it pass (hosts/rates.py)
        core_costs = replace(core_costs, networks=known.cores.get("softirq_cores", 0.0))
    fabric = replace(fabric, node_bytes_per_s=fabric.node_bytes_per_s * times, core_costs=core_costs)
    return replace(machine, fabric=fabric), speeds


def _per_node(run: Run) -> int:
    return run.ranks // (TINY_SHAPE if run.ranks == TINY_SHAPE.ranks else SHAPE).hosts


def _workload(run: dict[str, Any]) -> Workload:
    made = Run.model_validate(run)
    return make_workload(made, ranks_per_node=_per_node(made))


def _predict(study: Study, run: dict[str, Any], found: Found, lesson: Calibration) -> Estimate:
    """Seconds of a step."""
    machine, speeds = lesson.applied(_machine(study, Run.model_validate(run), found))
    return StepModel(_workload(run), machine, speeds).run().seconds


def _lesson(run: dict[str, Any], study: Study, found: Found) -> Calibration:
    """What the earlier run teaches, as `hpcbench predict --measured` learns it."""
    taught = found.taught
    workload, place = _workload(run), _machine(study, Run.model_validate(run), found)
    if not place[0].fabric.core_costs:
        parts = StepModel(workload, *place).run().parts
        return Calibration(
            1, work=float(taught["passes"] / (parts["forward"] + parts["backward"] + parts["recompute"]))
        )
    ranks = workload.layout.ranks
    compute_s = taught["seconds"] - sum(one["exposed_s"] for one in taught["traffic"].values()) / ranks
    lesson = Calibration(1, work=fit_slowdown(workload, place, compute_s))
    return replace(lesson, waiting=fit_waiting(workload, lesson.applied(place), taught["seconds"], compute_s) or 1.0)


def _bytes(runs: list[Run], found: list[dict[str, Any]]) -> None:
    """Say whether message bytes are those of the volume model: of the baseline, and of what else sends as much."""
    differ = {run.scheme.name: bytes_differ(run, one["traffic"]) for run, one in zip(runs, found, strict=True)}
    plain = [
        bytes_differ(run, one["traffic"])
        for run, one in zip(runs, found, strict=True)
        if run.scheme.algorithm == "native"
    ]
    exact = sum(not one for one in plain)
    print(f"message bytes of the baseline: exact in {exact} of {len(plain)} runs")
    for wrong in plain:
        for line in wrong:
            print(f"  {line}")
    more = [name for name, lines in differ.items() if lines and name != "baseline"]
    if more:
        print(f"  sent more often within nodes than the volume model counts: {', '.join(more)}")


def _memory(runs: list[dict[str, Any]], names: list[str], peaks: list[list[int]]) -> list[float]:
    """Print and give the errors of the rank that needs the most."""
    errors = []
    for run, name, peak in zip(runs, names, peaks, strict=True):
        predicted = predict_memory(_workload(run), None)
        errors.append(predicted.bytes / max(peak) - 1)
        print(
            f"  {name}: predicted {predicted.bytes / 2**20:.1f} MiB ({predicted.peak}), "
            f"traced {max(peak) / 2**20:.1f} MiB, {100 * errors[-1]:+.1f} %"
        )
    return errors


if __name__ == "__main__":
    sys.exit(main())
