"""Calibration of the model with earlier runs on a machine: computation, codecs, and waiting.

Each completed run of a results tree is predicted with the same tables as a new run. The ratio of measured to
predicted seconds gives a factor for computation (event ``hosts`` of the log) and a factor for the time that the
baseline waits for the network. The speed of codecs comes from the event ``traffic``. Factors are geometric means over
the runs.

If ranks share cores, messages slow down computation, and the first factor applies to all work of the cores. This factor
is chosen so that the model predicts the measured part of a step in which ranks are not blocked in a call. The blocked
part contains no information about the factor.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.collect.run_log import RunLog, read
from hpcbench.contract.events import ComputingTimes, TrafficTotals
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.run import Run, load
from hpcbench.contract.state import State
from hpcbench.contract.submission import FILE, read_submission
from hpcbench.errors import UserError
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.parameter_server import predict_step_time
from hpcbench.predict.step import StepTime
from hpcbench.predict.workload import Workload, make_workload

LEAST_SHARE = 0.15
"""Minimum predicted fraction of a step that a baseline run must spend waiting for messages to calibrate the network."""
_DEPTH = 4
"""Search depth for submissions below the user's directory."""

MachineAndCodecs = tuple[Machine, dict[str, CodecSpeed]]
FindMachine = Callable[[Workload], MachineAndCodecs]
"""Function that returns a run's machine and codecs, based on the tables alone."""


@dataclass(frozen=True)
class EarlierRun:
    """A completed run."""

    where: Path
    workload: Workload
    seconds: float
    """Mean step time in seconds after the warm-up."""
    compute_s: float | None
    """Computation time in seconds per step on the slowest host, or None if the log does not contain them."""
    log: RunLog


@dataclass(frozen=True)
class Calibration:
    """Factors and codec speeds derived from earlier runs."""

    runs: int = 0
    """Number of runs."""
    work: float = 1.0
    """Factor for computation, or for all work of shared cores; 1 if the runs contain no information."""
    waiting: float = 1.0
    """Factor for the time that a baseline waits for messages."""
    codecs: dict[str, CodecSpeed] = field(default_factory=dict)
    """Speed of each codec."""
    before: tuple[float, ...] = ()
    """Relative errors of these runs' predicted step times, based on the tables alone."""
    after: tuple[float, ...] = ()
    """Relative errors of these step times after calibration with the *other* runs."""

    def apply(self, uncalibrated: MachineAndCodecs) -> MachineAndCodecs:
        """Return the calibrated machine and codecs. Codec speeds from `bench network` take precedence."""
        if not self.runs:
            return uncalibrated
        machine, speeds = uncalibrated
        fabric = machine.fabric
        if self.waiting != 1.0:
            fabric = replace(fabric, share=fabric.share / self.waiting, between_basis=InputBasis.HERE)
        learned = replace(machine, fabric=fabric)
        if self.work != 1.0 and fabric.core_costs and machine.shared_cores:
            learned = replace(learned, shared_cores=machine.shared_cores / self.work, work_basis=InputBasis.HERE)
        elif self.work != 1.0:
            learned = replace(learned, work_factor=machine.work_factor * self.work, work_basis=InputBasis.HERE)
        return learned, {**self.codecs, **speeds}

    def describe(self) -> list[str]:
        """Describe the calibration in sentences."""
        if not self.runs:
            return []
        lines = [
            f"{self.runs} earlier runs: computation took {self.work:.2f} times the time from the tables, and "
            f"waiting for messages took {self.waiting:.2f} times the predicted time."
        ]
        for name, errors in (("the tables alone", self.before), ("a calibration from the other runs", self.after)):
            if errors:
                sizes = [abs(error) * 100 for error in errors]
                lines.append(
                    f"Errors of their step times with {name}: mean {statistics.mean(sizes):.1f} %, worst "
                    f"{max(sizes):.1f} %."
                )
        return lines


def find_runs(directory: Path, site: str) -> list[EarlierRun]:
    """Return the completed runs of a site in all submissions below a directory."""
    return [run for root in _submissions(directory) for run in _runs(root, site)]


def calibrate(runs: Sequence[EarlierRun], place: FindMachine) -> Calibration:
    """Return the calibration from completed runs.

    The reported errors are leave-one-out errors, which estimate the error of the next prediction.
    """
    if not runs:
        return Calibration()
    uncalibrated = [place(run.workload) for run in runs]
    plain = [predict_step_time(run.workload, *machine) for run, machine in zip(runs, uncalibrated, strict=True)]
    lesson = _combine_runs(runs, plain, uncalibrated)
    after = []
    if len(runs) > 1:
        for k, run in enumerate(runs):
            others = _combine_runs(*([*each[:k], *each[k + 1 :]] for each in (runs, plain, uncalibrated)))
            after.append(
                predict_step_time(run.workload, *others.apply(uncalibrated[k])).seconds.value / run.seconds - 1
            )
    before = [step.seconds.value / run.seconds - 1 for run, step in zip(runs, plain, strict=True)]
    return replace(lesson, before=tuple(before), after=tuple(after))


def fit_slowdown(workload: Workload, uncalibrated: MachineAndCodecs, compute_s: float) -> float:
    """Return the slowdown of all work on shared cores, between 1/4 and 4, for which the prediction matches a log.

    The predicted computation time grows with the slowdown, which is found by bisection.

    Parameters
    ----------
    compute_s
        Measured seconds of computation in a step.
    """
    low, high = _SLOWEST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if predict_step_time(workload, *Calibration(1, work=middle).apply(uncalibrated)).computed < compute_s:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def fit_waiting(workload: Workload, calibrated: MachineAndCodecs, seconds: float, compute_s: float) -> float | None:
    """Return the ratio of measured to predicted waiting time of a baseline on shared cores.

    The result is None if the waiting time is negligible.
    """
    step = predict_step_time(workload, *calibrated)
    by_links = step.network_seconds > LEAST_SHARE * step.seconds.value
    if workload.scheme.algorithm != "native" or not by_links or seconds <= compute_s:
        return None
    return (seconds - compute_s) / (step.seconds.value - step.computed)


_SLOWEST = 1 / 4, 4.0
_HALVINGS = 12


def _combine_runs(
    runs: Sequence[EarlierRun], plain: Sequence[StepTime], machines: Sequence[MachineAndCodecs]
) -> Calibration:
    work, waiting = [], []
    for run, step, machine in zip(runs, plain, machines, strict=True):
        if machine[0].fabric.core_costs:
            if run.compute_s and step.computed:
                work.append(fit_slowdown(run.workload, machine, run.compute_s))
                factor = fit_waiting(
                    run.workload, Calibration(1, work=work[-1]).apply(machine), run.seconds, run.compute_s
                )
                waiting += [factor] if factor else []
            continue
        parts = step.parts
        computed = sum(parts[name] for name in ("forward", "backward", "recompute", "optimizer"))
        if run.compute_s and computed:
            work.append(run.compute_s / computed)
        waited = sum(parts[name] for name in ("tensor", "pipeline", "data"))
        if run.compute_s and run.workload.scheme.algorithm == "native" and waited > LEAST_SHARE * step.seconds.value:
            scale = run.compute_s / computed if computed else 1.0
            unexplained = run.seconds - run.compute_s - parts["bubble"] * scale
            if unexplained > 0:
                waiting.append(unexplained / waited)
    return Calibration(len(runs), _mean(work), _mean(waiting), _speeds(run.log for run in runs))


def _mean(factors: Sequence[float]) -> float:
    return math.exp(statistics.mean(map(math.log, factors))) if factors else 1.0


def _speeds(logs: Iterable[RunLog]) -> dict[str, CodecSpeed]:
    """Compute the speed of each codec from the traffic of all runs and channels."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0, 0.0])
    for log in logs:
        for channel in log.read_event(TrafficTotals).channels or ():
            if not channel.codec or channel.codec == "none" or not channel.coded_bytes:
                continue
            has_ratio = not channel.plain_calls and channel.wire_bytes and channel.message_bytes
            added = (
                channel.coded_bytes,
                channel.encode_s or 0.0,
                channel.decode_s or 0.0,
                channel.wire_bytes if has_ratio and channel.coded_bytes == channel.message_bytes else 0,
                channel.message_bytes if has_ratio and channel.coded_bytes == channel.message_bytes else 0,
            )
            sums[channel.codec] = [a + float(b or 0) for a, b in zip(sums[channel.codec], added, strict=True)]
    return {
        codec: CodecSpeed(coded / encode, coded / decode, 0.0, wire / message if message else None, InputBasis.HERE)
        for codec, (coded, encode, decode, wire, message) in sums.items()
        if encode > 0 and decode > 0
    }


def _submissions(directory: Path) -> Iterator[Path]:
    for depth in range(_DEPTH + 1):
        for path in sorted(directory.glob("/".join(["*"] * depth + [FILE]))):
            yield path.parent


def _runs(root: Path, site: str) -> Iterator[EarlierRun]:
    """List the completed runs of a submission that the model covers."""
    plan = read_submission(root)
    if plan.site != site:
        return
    for planned in plan.runs:
        path = root / planned.path / "log.txt"
        if not path.is_file():
            continue
        log = read(path)
        try:
            run, _ = load(root / planned.path / "run.json")
            per_node = run.shape.ranks_per_node if run.shape else run.ranks
            workload = make_workload(run, ranks_per_node=per_node)
        except (UserError, ValueError):
            continue  # The run is from a different version or uses a setting that the model does not cover.
        seconds = _measured(run, log)
        if seconds is not None:
            hosts = [host.compute_s for host in log.read_event(ComputingTimes).hosts or () if host.compute_s]
            yield EarlierRun(path, workload, seconds, max(hosts, default=None), log)


def _measured(run: Run, log: RunLog) -> float | None:
    """Return the mean step time in seconds, or None if the run did not complete."""
    if log.ending.state != State.COMPLETED.value:
        return None
    first = find_first_counted(run.train.warmup_steps, run.train.steps, log.resumed_from)
    times = [time for time in log.steps.column("seconds", first=first) if time > 0]
    return statistics.fmean(times) if times else None
