"""What earlier runs of a machine teach the next prediction: how long they computed, encoded and waited.

Each completed run of a results tree is predicted with the same tables as the next one. Measured over predicted gives a
factor for its computing (the ``hosts`` event of its log) and one for what its baseline waited on the network; codecs
tell their speed themselves (the ``traffic`` event). The factors are geometric means over the runs.

Where ranks share cores, messages make computing longer. There the first factor is for all that the cores do: the one
with which the model comes to the part of a step in which ranks wait for no call. What they wait says nothing of it.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.collect.run_log import RunLog, read
from hpcbench.contract.events import Hosts, TrafficTotals
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
"""Part of a step that a baseline waits for messages, by the model: below it nothing is learned of the network."""
_DEPTH = 4
"""Directories below the one that is named in which submissions are looked for."""

MachineAndCodecs = tuple[Machine, dict[str, CodecSpeed]]
FindMachine = Callable[[Workload], MachineAndCodecs]
"""Machine and codecs of a run, by the tables alone."""


@dataclass(frozen=True)
class EarlierRun:
    """A completed run."""

    where: Path
    workload: Workload
    seconds: float
    """Mean of its steps after the warm-up."""
    compute_s: float | None
    """Seconds of a step on the host that computed the longest."""
    log: RunLog


@dataclass(frozen=True)
class Calibration:
    """What the runs say.

    Attributes
    ----------
    runs
        So many.
    work
        Factor of computing, and where ranks share cores of all that the cores do; 1 where nothing was learned.
    waiting
        Factor of what a baseline waits for messages.
    codecs
        Speeds.
    before, after
        Relative errors of the runs' step times as the tables predict them, and with what was learned of the *other*
        runs.
    """

    runs: int = 0
    work: float = 1.0
    waiting: float = 1.0
    codecs: dict[str, CodecSpeed] = field(default_factory=dict)
    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()

    def applied(self, known: MachineAndCodecs) -> MachineAndCodecs:
        """Machine and codecs with what was learned; what a table of `bench network` says of a codec stands."""
        if not self.runs:
            return known
        machine, speeds = known
        fabric = machine.fabric
        if self.waiting != 1.0:
            fabric = replace(fabric, share=fabric.share / self.waiting, between_basis=InputBasis.HERE)
        learned = replace(machine, fabric=fabric)
        if self.work != 1.0 and fabric.core_costs and machine.shared_cores:
            learned = replace(learned, shared_cores=machine.shared_cores / self.work, work_basis=InputBasis.HERE)
        elif self.work != 1.0:
            learned = replace(learned, work_factor=machine.work_factor * self.work, work_basis=InputBasis.HERE)
        return learned, {**self.codecs, **speeds}

    def words(self) -> list[str]:
        """For people, a sentence each."""
        if not self.runs:
            return []
        lines = [
            f"{self.runs} earlier runs: computing took {self.work:.2f} times what the tables say, waiting for messages "
            f"{self.waiting:.2f} times."
        ]
        for name, errors in (("the tables alone", self.before), ("what the other runs taught", self.after)):
            if errors:
                sizes = [abs(error) * 100 for error in errors]
                lines.append(
                    f"Their step times by {name}: mean error {statistics.mean(sizes):.1f} %, worst {max(sizes):.1f} %."
                )
        return lines


def find_runs(directory: Path, site: str) -> list[EarlierRun]:
    """The completed runs of a site below a directory, of all submissions there."""
    return [run for root in _submissions(directory) for run in _runs(root, site)]


def calibrate(runs: Sequence[EarlierRun], place: FindMachine) -> Calibration:
    """What the runs teach; its errors are left-one-out, so that they say what is to be hoped of the next run."""
    if not runs:
        return Calibration()
    known = [place(run.workload) for run in runs]
    plain = [_predicted(run, one) for run, one in zip(runs, known, strict=True)]
    lesson = _lesson(runs, plain, known)
    after = []
    if len(runs) > 1:
        for k, run in enumerate(runs):
            others = _lesson(*([*each[:k], *each[k + 1 :]] for each in (runs, plain, known)))
            after.append(_predicted(run, others.applied(known[k])).seconds.value / run.seconds - 1)
    before = [made.seconds.value / run.seconds - 1 for run, made in zip(runs, plain, strict=True)]
    return replace(lesson, before=tuple(before), after=tuple(after))


def fit_slowdown(workload: Workload, known: MachineAndCodecs, compute_s: float) -> float:
    """How many times as long all takes that shared cores do, by a log's seconds of computing in a step; 1/4 to 4.

    It is found by halving, for the computing grows with it.
    """
    low, high = _SLOWEST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if predict_step_time(workload, *Calibration(1, work=middle).applied(known)).computed < compute_s:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def fit_waiting(workload: Workload, known: MachineAndCodecs, seconds: float, compute_s: float) -> float | None:
    """How many times as long a baseline on shared cores waits for messages; None if links hardly let it wait."""
    made = predict_step_time(workload, *known)
    by_links = made.network_seconds > LEAST_SHARE * made.seconds.value
    if workload.scheme.algorithm != "native" or not by_links or seconds <= compute_s:
        return None
    return (seconds - compute_s) / (made.seconds.value - made.computed)


_SLOWEST = 1 / 4, 4.0
_HALVINGS = 12


def _lesson(runs: Sequence[EarlierRun], plain: Sequence[StepTime], known: Sequence[MachineAndCodecs]) -> Calibration:
    work, waiting = [], []
    for run, made, place in zip(runs, plain, known, strict=True):
        if place[0].fabric.core_costs:
            if run.compute_s and made.computed:
                work.append(fit_slowdown(run.workload, place, run.compute_s))
                factor = fit_waiting(
                    run.workload, Calibration(1, work=work[-1]).applied(place), run.seconds, run.compute_s
                )
                waiting += [factor] if factor else []
            continue
        parts = made.parts
        computed = sum(parts[name] for name in ("forward", "backward", "recompute", "optimizer"))
        if run.compute_s and computed:
            work.append(run.compute_s / computed)
        waited = sum(parts[name] for name in ("tensor", "pipeline", "data"))
        if run.compute_s and run.workload.scheme.algorithm == "native" and waited > LEAST_SHARE * made.seconds.value:
            scale = run.compute_s / computed if computed else 1.0
            rest = run.seconds - run.compute_s - parts["bubble"] * scale
            if rest > 0:
                waiting.append(rest / waited)
    return Calibration(len(runs), _mean(work), _mean(waiting), _speeds(run.log for run in runs))


def _mean(factors: Sequence[float]) -> float:
    return math.exp(statistics.mean(map(math.log, factors))) if factors else 1.0


def _speeds(logs: Iterable[RunLog]) -> dict[str, CodecSpeed]:
    """Speeds of codecs, by what all channels of all runs say together."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0, 0.0])
    for log in logs:
        for channel in log.read_event(TrafficTotals).channels or ():
            if not channel.codec or channel.codec == "none" or not channel.coded_bytes:
                continue
            whole = not channel.plain_calls and channel.wire_bytes and channel.message_bytes
            added = (
                channel.coded_bytes,
                channel.encode_s or 0.0,
                channel.decode_s or 0.0,
                channel.wire_bytes if whole and channel.coded_bytes == channel.message_bytes else 0,
                channel.message_bytes if whole and channel.coded_bytes == channel.message_bytes else 0,
            )
            sums[channel.codec] = [a + float(b or 0) for a, b in zip(sums[channel.codec], added, strict=True)]
    return {
        codec: CodecSpeed(coded / encode, coded / decode, 0.0, wire / message if message else None, InputBasis.HERE)
        for codec, (coded, encode, decode, wire, message) in sums.items()
        if encode > 0 and decode > 0
    }


def _predicted(run: EarlierRun, known: MachineAndCodecs) -> StepTime:
    return predict_step_time(run.workload, *known)


def _submissions(directory: Path) -> Iterator[Path]:
    for depth in range(_DEPTH + 1):
        for path in sorted(directory.glob("/".join(["*"] * depth + [FILE]))):
            yield path.parent


def _runs(root: Path, site: str) -> Iterator[EarlierRun]:
    """The runs of a submission that completed, and that the model knows."""
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
            workload = make_workload(run, ranks_per_node=_per_node(run))
        except (UserError, ValueError):
            continue  # of another version, or with what the model lacks: it teaches nothing
        found = _measured(run, log)
        if found is not None:
            hosts = [one.compute_s for one in log.read_event(Hosts).hosts or () if one.compute_s]
            yield EarlierRun(path, workload, found, max(hosts, default=None), log)


def _per_node(run: Run) -> int:
    return run.shape.ranks_per_node if run.shape else run.ranks


def _measured(run: Run, log: RunLog) -> float | None:
    """Seconds of a step; None where the run did not come to its end."""
    if log.ending.state != State.COMPLETED.value:
        return None
    first = find_first_counted(run.train.warmup_steps, run.train.steps, log.resumed_from)
    times = [time for time in log.steps.column("seconds", first=first) if time > 0]
    return statistics.fmean(times) if times else None
