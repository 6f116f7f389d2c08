"""The numbers of one run, from its log after the warm-up."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.report import resources, traffic
from hpcbench.report.basis import Basis, read_basis
from hpcbench.report.checks.notes import list_run_notes
from hpcbench.report.checks.relations import CheckedRun
from hpcbench.report.pace import Pace, Rates, compute_mean_rate, compute_pace, read_step_times
from hpcbench.report.resources import HostTime, PeakMemory, StepPhases, average_phases
from hpcbench.report.traffic import HostTraffic, TimeSplit, TrafficSum, Unknown

Extract = TypeVar("Extract")


@dataclass(frozen=True, kw_only=True)
class Measures(Pace):
    """The numbers of one run; None if its log does not contain them. Its pace is that of the steps after the warm-up.

    FLOP/s are those that the model needs, those that were executed, or those that the log gives without a label. They
    are never mixed.
    """

    run: RunResult
    steps: int
    """Number of steps from which the throughput is computed."""
    batch: int | None
    """Samples of a step."""
    model_flops_per_rank: float | None
    """FLOP/s that the model needs, recomputed from shape, samples/s and ranks."""
    hardware_flops_per_rank: float | None
    """FLOP/s that were executed, recomputed in the same way."""
    neox_flops_per_rank: float | None
    """Executed FLOP/s by GPT-NeoX's formula; None in logs of other frameworks, which have their own formulas."""
    unlabelled_flops_per_rank: float | None
    """FLOP/s for which the log does not say whether recomputation counts."""
    chip: str | None
    """Chip of the ranks, by PyTorch's name; None for a CPU, and if the ranks have different chips."""
    peak: float | None
    """Dense peak in FLOP/s of a rank's share of its GPU, in the precision of the run."""
    mfu: float | None
    """Model FLOP/s divided by the peak, as a fraction; the log's own figure if the peak is not known."""
    hfu: float | None
    """Executed FLOP/s divided by the peak, as a fraction; the log's own figure if the peak is not known."""
    message_bytes: int
    wire_bytes: int | Unknown
    """Bytes after the codec of all ranks, in the steps after the warm-up."""
    time: TimeSplit | None
    """Split of a step's time."""
    channels: tuple[TrafficSum, ...]
    """Traffic of each channel."""
    dimensions: tuple[TrafficSum, ...]
    """Traffic of each parallel dimension."""
    host_link: HostTraffic | None
    """Traffic over the links between devices and hosts; None if nothing is offloaded."""
    phases: StepPhases | None
    """Phases of a step."""
    hosts: tuple[HostTime, ...]
    """Computing time of the ranks of each host."""
    memory: PeakMemory
    skipped: int | None
    """Number of steps that changed no weight."""
    nan_steps: int | None
    """Number of steps whose loss was NaN or infinite."""
    loss_train: float | None
    """Loss of the last step."""
    loss_valid: float | None
    """Loss of the evaluation after the last step; None for a run that has not reached it."""
    diverged_at: int | None
    notes: tuple[str, ...]
    """Sentences about contradictions in the log and about other facts for the reader."""
    first: int = field(default=1, repr=False)
    """Number of the first step after the warm-up."""
    _extracts: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def extract(self, read: Callable[[RunLog], Extract | None]) -> Extract | None:
        """Return what `read` extracts from the log, such as the tokens of experts. It is called once per run.

        None for a run without a log.
        """
        if read not in self._extracts:
            self._extracts[read] = read(self.run.log) if self.run.log else None
        extract: Extract | None = self._extracts[read]
        return extract

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte; None for a run without traffic."""
        return traffic.divide_bytes(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """Fraction of the bytes for which the scheme has a codec that were encoded; None if there are no such bytes."""
        return traffic.compute_coded_part(self.channels)

    @property
    def counted_steps(self) -> list[float]:
        """Numbers of the steps from which the throughput is computed."""
        return self.run.log.steps.column("step", first=self.first) if self.run.log else []

    def rates_over(self, steps: Container[float]) -> Rates:
        """Compute the work per second over the counted steps that are among `steps`."""
        return (
            compute_pace(self.run.log, read_basis(self.run, self.run.log), steps).rates if self.run.log else self.rates
        )

    def step_times(self) -> list[float]:
        """Return the seconds of the steps after the warm-up, in the order of the log."""
        return read_step_times(self.run.log, self.first) if self.run.log else []


def measure(run: RunResult) -> Measures:
    """Compute the numbers of a run from its log."""
    log = run.log or RunLog(Path())
    has_wire_bytes = not run.settings.scheme.hides_traffic
    rests_on = read_basis(run, log)
    first = rests_on.first
    speed = compute_pace(log, rests_on)
    rate = speed.samples_per_s
    model = _compute_flops(log, "model_flops_per_rank", rests_on.model_flops, rate, rests_on)
    hardware = _compute_flops(log, "hardware_flops_per_rank", rests_on.hardware_flops, rate, rests_on)
    channels = traffic.read_channels(log, rests_on.ranks, has_wire_bytes=has_wire_bytes)
    time = traffic.split_time(channels, traffic.select_counted(log, "seconds")) if traffic.has_times(log) else None
    messages, wires = _sum_bytes(log, first, channels)
    last = log.last_step
    return Measures(
        **vars(speed),
        run=run,
        steps=len(log.steps.column("step", first=first)),
        batch=rests_on.batch,
        model_flops_per_rank=model,
        hardware_flops_per_rank=hardware,
        neox_flops_per_rank=_recompute_flops(rests_on.neox_flops, rate, rests_on),
        unlabelled_flops_per_rank=compute_mean_rate(log, "unlabelled_flops_per_rank", first),
        chip=rests_on.chip,
        peak=rests_on.peak,
        mfu=_compute_utilization(log, "mfu", model, rests_on),
        hfu=_compute_utilization(log, "hfu", hardware, rests_on),
        message_bytes=messages,
        wire_bytes=wires if has_wire_bytes else "unknown",
        time=time,
        channels=channels,
        dimensions=traffic.sum_by_dimension(channels),
        host_link=traffic.read_host_traffic(log, rests_on.ranks),
        phases=average_phases(log, run.settings),
        hosts=resources.read_hosts(log),
        memory=resources.read_memory(log),
        skipped=_find_highest(log, "skipped"),
        nan_steps=_count_nan_steps(log),
        loss_train=last.loss if last else None,
        loss_valid=log.final_loss(),
        diverged_at=log.diverged_at,
        notes=tuple(list_run_notes(CheckedRun(run, log, rests_on, channels, time))),
        first=first,
    )


def select_completed(runs: Iterable[Measures]) -> list[Measures]:
    """Return the completed runs."""
    return [run for run in runs if run.run.state == "completed"]


def select_counted(runs: Sequence[Measures]) -> list[Measures]:
    """Return the runs that a scheme's numbers are computed from: completed ones or, without any, those with a speed."""
    return select_completed(runs) or [run for run in runs if run.samples_per_s]


def is_gpu(run: RunResult) -> bool:
    """Return whether the run's ranks compute on GPUs."""
    return (run.settings.device or "cpu") != "cpu"


def compute_common_rates(mine: Measures, other: Measures) -> tuple[Rates, Rates]:
    """Return the work per second of two runs over the steps that both counted.

    Otherwise a shorter run, or one with a longer warm-up, would be compared with other steps.
    """
    if mine.counted_steps == other.counted_steps:
        return mine.rates, other.rates
    both = frozenset(mine.counted_steps).intersection(other.counted_steps)
    return mine.rates_over(both), other.rates_over(both)


def compute_common_rate(mine: Measures, other: Measures) -> tuple[float, float] | None:
    """Return the first of `compute_common_rates` that both runs have, such as samples/s; None if there is none."""
    pairs = zip(*compute_common_rates(mine, other), strict=True)
    return next(((a, b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0), None)


def _sum_bytes(log: RunLog, first: int, channels: Sequence[TrafficSum]) -> tuple[int, int | Unknown]:
    """Return message bytes and wire bytes: of the steps, or of all traffic if step lines do not contain them."""
    messages, wires = (log.steps.column(name, first=first) for name in ("message_bytes", "wire_bytes"))
    if messages or not channels:
        return int(sum(messages)), int(sum(wires))
    return sum(row.message_bytes for row in channels), traffic.add_bytes([row.wire_bytes for row in channels])


def _compute_flops(
    log: RunLog, name: str, per_sample: float | None, rate: float | None, rests_on: Basis
) -> float | None:
    """Return the FLOP/s of a rank: from the rate if the work of a sample is known, otherwise as printed."""
    return _recompute_flops(per_sample, rate, rests_on) or compute_mean_rate(log, name, rests_on.first)


def _recompute_flops(per_sample: float | None, rate: float | None, rests_on: Basis) -> float | None:
    return per_sample * rate / rests_on.ranks if per_sample and rate and rests_on.ranks else None


def _compute_utilization(log: RunLog, name: str, flops: float | None, rests_on: Basis) -> float | None:
    if rests_on.peak and flops:
        return flops / rests_on.peak
    return compute_mean_rate(log, name, rests_on.first)


def _find_highest(log: RunLog, name: str) -> int | None:
    values = log.steps.column(name)
    return int(max(values)) if values else None


def _count_nan_steps(log: RunLog) -> int | None:
    counted = _find_highest(log, "nan_steps")
    if counted is not None:
        return counted
    losses = log.steps.column("loss")
    return len(losses) - sum(map(isfinite, losses)) if losses else None
