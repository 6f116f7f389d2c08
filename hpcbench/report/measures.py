"""Measured and derived numbers of a run, from the log after the warm-up."""

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
    """Numbers of a run, each None if the log does not contain it. The speed covers only the steps after the warm-up.

    FLOP/s required by the model, executed FLOP/s and unlabeled FLOP/s are never mixed.
    """

    run: RunResult
    steps: int
    """Number of steps used to compute the throughput."""
    model_flops_per_rank: float | None
    """FLOP/s required by the model, recomputed from the model's shape, samples/s and the number of ranks."""
    hardware_flops_per_rank: float | None
    """Executed FLOP/s, recomputed in the same way."""
    neox_flops_per_rank: float | None
    """Executed FLOP/s according to GPT-NeoX's formula, or None for frameworks with other formulas."""
    unlabelled_flops_per_rank: float | None
    """FLOP/s from logs that do not specify whether recomputation is included."""
    mfu: float | None
    """Model FLOP/s as a fraction of the peak. If the peak is unknown, the value is read from the log."""
    hfu: float | None
    """Executed FLOP/s as a fraction of the peak. If the peak is unknown, the value is read from the log."""
    message_bytes: int
    wire_bytes: int | Unknown
    """Encoded bytes of all ranks in the steps after the warm-up."""
    time: TimeSplit | None
    """Breakdown of the step time."""
    channels: tuple[TrafficSum, ...]
    """Traffic of each channel."""
    dimensions: tuple[TrafficSum, ...]
    """Traffic of each parallel dimension."""
    host_link: HostTraffic | None
    """Traffic between devices and hosts, or None if nothing is offloaded."""
    phases: StepPhases | None
    """Phases of a step."""
    hosts: tuple[HostTime, ...]
    """Computing time of the ranks on each host."""
    memory: PeakMemory
    skipped: int | None
    """Number of steps that did not update the weights."""
    nan_steps: int | None
    """Number of steps whose loss was NaN or infinite."""
    loss_train: float | None
    """Loss of the last step."""
    loss_valid: float | None
    """Validation loss after the last step, or None if the run has not reached the evaluation."""
    diverged_at: int | None
    notes: tuple[str, ...]
    """Sentences about contradictions in the log and other noteworthy facts."""
    basis: Basis = field(repr=False)
    """Inputs of the derived numbers, such as the batch size and the GPU model."""
    _extracts: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def extract(self, read: Callable[[RunLog], Extract | None]) -> Extract | None:
        """Apply `read` to the log, for example to extract expert loads. Results are cached per run.

        For runs without a log, the result is None.
        """
        if read not in self._extracts:
            self._extracts[read] = read(self.run.log) if self.run.log else None
        extract: Extract | None = self._extracts[read]
        return extract

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte, or None for runs without traffic."""
        return traffic.divide_bytes(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """Encoded bytes as a fraction of the bytes of messages with a codec, or None if no message has a codec."""
        return traffic.compute_coded_part(self.channels)

    @property
    def counted_steps(self) -> list[float]:
        """Numbers of the steps used to compute the throughput."""
        return self.run.log.steps.column("step", first=self.basis.first) if self.run.log else []

    def rates_over(self, steps: Container[float]) -> Rates:
        """Compute the work per second over the counted steps in `steps`."""
        return compute_pace(self.run.log, self.basis, steps).rates if self.run.log else self.rates

    def step_times(self) -> list[float]:
        """Return the step times in seconds after the warm-up, in log order."""
        return read_step_times(self.run.log, self.basis.first) if self.run.log else []


def measure(run: RunResult) -> Measures:
    """Compute the measures of a run from its log."""
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
        model_flops_per_rank=model,
        hardware_flops_per_rank=hardware,
        neox_flops_per_rank=_recompute_flops(rests_on.neox_flops, rate, rests_on),
        unlabelled_flops_per_rank=compute_mean_rate(log, "unlabelled_flops_per_rank", first),
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
        basis=rests_on,
    )


def select_completed(runs: Iterable[Measures]) -> list[Measures]:
    """Return the completed runs."""
    return [run for run in runs if run.run.state == "completed"]


def select_counted(runs: Sequence[Measures]) -> list[Measures]:
    """Return the runs used for a scheme's numbers: the completed runs or, if there are none, the runs with a speed."""
    return select_completed(runs) or [run for run in runs if any(run.rates)]


def is_gpu(run: RunResult) -> bool:
    """Return whether the run's ranks compute on GPUs."""
    return (run.settings.device or "cpu") != "cpu"


def compute_common_rate(mine: Measures, other: Measures) -> tuple[float, float] | None:
    """Return the first rate that both runs provide, such as samples/s, or None if they have no rate in common.

    Rates cover the steps that both runs counted. Otherwise, runs with different lengths or warm-ups would be compared
    over different steps.
    """
    rates = mine.rates, other.rates
    if mine.counted_steps != other.counted_steps:
        both = frozenset(mine.counted_steps).intersection(other.counted_steps)
        rates = mine.rates_over(both), other.rates_over(both)
    pairs = zip(*rates, strict=True)
    return next(((a, b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0), None)


def _sum_bytes(log: RunLog, first: int, channels: Sequence[TrafficSum]) -> tuple[int, int | Unknown]:
    """Return the message and wire bytes from the step lines, or from the traffic totals if the lines contain none."""
    messages, wires = (log.steps.column(name, first=first) for name in ("message_bytes", "wire_bytes"))
    if messages or not channels:
        return int(sum(messages)), int(sum(wires))
    return sum(row.message_bytes for row in channels), traffic.add_bytes([row.wire_bytes for row in channels])


def _compute_flops(
    log: RunLog, name: str, per_sample: float | None, rate: float | None, rests_on: Basis
) -> float | None:
    """Return the FLOP/s per rank, computed from the rate if the work per sample is known, otherwise as printed."""
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
