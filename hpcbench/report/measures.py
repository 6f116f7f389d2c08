"""The numbers of one run: what its log says after the warm-up."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.contract.values import member, text
from hpcbench.report import checks, resources, traffic
from hpcbench.report.basis import Basis, basis
from hpcbench.report.provenance import differences
from hpcbench.report.resources import Energy, HostTime, Memory, Phases, phases
from hpcbench.report.traffic import HostLink, TimeSplit, Traffic, Unknown

Rates = tuple[float | None, ...]
"""Work a second in samples, tokens, tokens of a rank, and steps: where runs differ in nothing else, the ratio of any of
them is the ratio of their speeds."""


@dataclass(frozen=True)
class Measures:
    """Numbers of one run; None where its log does not give them.

    FLOP/s are those that the model needs, those that were executed, or those of which the log does not say which they
    are. One is never taken for the other.
    """

    run: RunResult
    steps: int
    """Steps that the throughput rests on."""
    step_seconds: float | None
    """Median over the steps after the warm-up."""
    samples_per_s: float | None
    """Global batch over the median step time."""
    tokens_per_s: float | None
    tokens_per_s_per_rank: float | None
    model_flops_per_rank: float | None
    """FLOP/s that the model needs, recomputed from shape, samples/s and ranks."""
    hardware_flops_per_rank: float | None
    """FLOP/s that were executed, recomputed likewise."""
    neox_flops_per_rank: float | None
    """FLOP/s that GPT-NeoX's formula gives for what was executed; None in logs of others, which have their own."""
    unlabelled_flops_per_rank: float | None
    """FLOP/s of which the log does not say whether recomputation counts."""
    chip: str | None
    """What the ranks compute on, as PyTorch names it; None for a CPU, and where they differ."""
    peak: float | None
    """Dense peak in FLOP/s of a rank's share of its GPU, in the precision of the run."""
    mfu: float | None
    """Model FLOP/s over the peak, as a part of 1; as the log claims it where the peak is unknown."""
    hfu: float | None
    """Executed FLOP/s over the peak, as a part of 1; as the log claims it where the peak is unknown."""
    message_bytes: int
    wire_bytes: int | Unknown
    """Bytes before and after the codec, all ranks, steps after the warm-up."""
    time: TimeSplit | None
    """Where the time of a step goes."""
    channels: tuple[Traffic, ...]
    """What each channel carried."""
    dimensions: tuple[Traffic, ...]
    """What each parallel dimension carried."""
    host_link: HostLink | None
    """What crossed the links between devices and hosts; None where nothing is offloaded."""
    phases: Phases | None
    """Where the time of a step goes, by what the ranks are about."""
    hosts: tuple[HostTime, ...]
    """How long the ranks of each host computed."""
    memory: Memory
    energy: Energy | None
    """Joules of its steps; None where the counters give no whole sum."""
    skipped: int | None
    """Steps that changed no weight."""
    nan_steps: int | None
    """Steps whose loss was no number."""
    loss_train: float | None
    """Loss of the last step."""
    loss_valid: float | None
    """Loss of the evaluation after the last step; None for a run that has not come so far."""
    diverged_at: int | None
    notes: tuple[str, ...]
    """Where the log disagrees with itself, and what else a reader must know, a sentence each."""
    first: int = field(default=1, repr=False)
    """Number of the first step after the warm-up."""

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte; None for a run without traffic."""
        return traffic.wire_over_message(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """Bytes that went through a codec, as a part of those that the scheme has a codec for; None without such."""
        return traffic.coded_part(self.channels)

    @property
    def counted_steps(self) -> list[float]:
        """Numbers of the steps that the throughput rests on."""
        return self.run.log.steps.column("step", first=self.first) if self.run.log else []

    @property
    def rates(self) -> Rates:
        """What it did a second, over the steps that it counted."""
        return _rates(self.samples_per_s, self.tokens_per_s, self.tokens_per_s_per_rank, self.step_seconds)

    def rates_over(self, steps: Container[float]) -> Rates:
        """What it did a second, over those of its counted steps that are among `steps`."""
        return _rates(*_speeds(self.run.log, basis(self.run, self.run.log), steps)) if self.run.log else self.rates

    def step_times(self) -> list[float]:
        """Seconds of the steps after the warm-up, in the order of the log: what an interval is drawn from."""
        return _times(self.run.log, self.first) if self.run.log else []


def measure(run: RunResult) -> Measures:
    """Take a run's numbers from its log."""
    log = run.log or RunLog(Path())
    known = not own_environment(run)
    rests_on = basis(run, log)
    first = rests_on.first
    rate, tokens, per_rank, seconds = _speeds(log, rests_on)
    model = _flops(log, "model_flops_per_rank", rests_on.model_flops, rate, rests_on)
    hardware = _flops(log, "hardware_flops_per_rank", rests_on.hardware_flops, rate, rests_on)
    channels = traffic.channels(log, rests_on.ranks, known=known)
    time = traffic.time_split(channels, traffic.counted(log, "seconds"))
    last = log.last_step
    return Measures(
        run=run,
        steps=len(log.steps.column("step", first=first)),
        step_seconds=seconds,
        samples_per_s=rate,
        tokens_per_s=tokens,
        tokens_per_s_per_rank=per_rank,
        model_flops_per_rank=model,
        hardware_flops_per_rank=hardware,
        neox_flops_per_rank=_recomputed(rests_on.neox_flops, rate, rests_on),
        unlabelled_flops_per_rank=_printed(log, "unlabelled_flops_per_rank", first),
        chip=rests_on.chip,
        peak=rests_on.peak,
        mfu=_utilization(log, "mfu", model, rests_on),
        hfu=_utilization(log, "hfu", hardware, rests_on),
        message_bytes=int(sum(log.steps.column("message_bytes", first=first))),
        wire_bytes=int(sum(log.steps.column("wire_bytes", first=first))) if known else "unknown",
        time=time,
        channels=channels,
        dimensions=traffic.by_dimension(channels),
        host_link=traffic.host_link(log, rests_on.ranks),
        phases=phases(log, run.settings),
        hosts=resources.hosts(log),
        memory=resources.memory(log),
        energy=resources.energy(log, rests_on.batch),
        skipped=_highest(log, "skipped"),
        nan_steps=_nan_steps(log),
        loss_train=last.loss if last else None,
        loss_valid=log.final_loss(),
        diverged_at=log.diverged_at,
        notes=tuple(checks.notes(checks.Subject(run, log, rests_on, channels, time))),
        first=first,
    )


def all_notes(runs: Iterable[Measures]) -> list[str]:
    """What there is to say of the runs, each thing once, and of what they differ in beside what is compared."""
    own = list(runs)
    notes = [note for run in own for note in run.notes]
    return list(dict.fromkeys([*notes, *differences([run.run for run in own])]))


def completed(runs: Iterable[Measures]) -> list[Measures]:
    """The runs that came to their end."""
    return [run for run in runs if run.run.state == "completed"]


def counted(runs: Sequence[Measures]) -> list[Measures]:
    """The runs that a scheme's numbers rest on: the completed ones, or else those that have a speed at all."""
    return completed(runs) or [run for run in runs if run.samples_per_s]


def is_gpu(run: RunResult) -> bool:
    """Whether the run's ranks compute on GPUs."""
    return (text(run.settings, "device") or "cpu") != "cpu"


def own_environment(run: RunResult) -> dict[str, str]:
    """Variables that only the runs of its scheme had: the MPI library may have compressed by itself."""
    found = member(run.settings, "scheme", "environment")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def is_uncompressed(run: RunResult) -> bool:
    """Whether nothing compresses the run's traffic; False where its scheme is unknown or has variables of its own."""
    scheme: Any = run.settings.get("scheme")
    rules = member(scheme, "rules")
    if text(scheme, "default") is None or not isinstance(rules, list) or own_environment(run):
        return False
    return {text(scheme, "default"), *(text(rule, "codec") for rule in rules)} == {"none"}


def common_rates(mine: Measures, other: Measures) -> tuple[Rates, Rates]:
    """What two runs did a second, over the steps that both counted.

    One that was cut, or had a longer warm-up, is not compared by steps that the other did not take.
    """
    if mine.counted_steps == other.counted_steps:
        return mine.rates, other.rates
    both = frozenset(mine.counted_steps).intersection(other.counted_steps)
    return mine.rates_over(both), other.rates_over(both)


def common_rate(mine: Measures, other: Measures) -> tuple[float, float] | None:
    """The first of `common_rates` that is known of both, such as samples/s; None where none is."""
    pairs = zip(*common_rates(mine, other), strict=True)
    return next(((a, b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0), None)


def _rates(samples: float | None, tokens: float | None, per_rank: float | None, seconds: float | None) -> Rates:
    return samples, tokens, per_rank, 1 / seconds if seconds else None


def _speeds(
    log: RunLog, rests_on: Basis, steps: Container[float] | None = None
) -> tuple[float | None, float | None, float | None, float | None]:
    """Samples/s, tokens/s, tokens/s of a rank, and seconds a step: of the counted steps, or some of them."""
    first = rests_on.first
    seconds = _median(_times(log, first, steps))
    rate = _rate(log, rests_on, seconds, steps)
    tokens = rate * rests_on.seq_len if rate and rests_on.seq_len else _printed(log, "tokens_per_s", first, steps)
    per_rank = tokens / rests_on.ranks if tokens and rests_on.ranks else None
    return rate, tokens, per_rank or _printed(log, "tokens_per_s_per_rank", first, steps), seconds


def _times(log: RunLog, first: int, steps: Container[float] | None = None) -> list[float]:
    return [seconds for seconds in _column(log, "seconds", first, steps) if seconds > 0]


def _rate(log: RunLog, rests_on: Basis, seconds: float | None, steps: Container[float] | None) -> float | None:
    """Samples/s: from the batch that was set, as printed, or from the batch that every step line names."""
    if rests_on.batch and seconds:
        return rests_on.batch / seconds
    printed = _printed(log, "samples_per_s", rests_on.first, steps)
    batches = set(_column(log, "samples", rests_on.first, steps))
    return batches.pop() / seconds if printed is None and len(batches) == 1 and seconds else printed


def _printed(log: RunLog, name: str, first: int, steps: Container[float] | None = None) -> float | None:
    return _median(_column(log, name, first, steps))


def _column(log: RunLog, name: str, first: int, steps: Container[float] | None) -> list[float]:
    """A quantity of the steps from number `first` on, or of some of them."""
    if steps is None:
        return log.steps.column(name, first=first)
    return [value for step, value in log.steps.columns("step", name, first=first) if step in steps]


def _flops(log: RunLog, name: str, per_sample: float | None, rate: float | None, rests_on: Basis) -> float | None:
    """FLOP/s of a rank: from the rate where the work of a sample is known, as printed where it is not."""
    return _recomputed(per_sample, rate, rests_on) or _printed(log, name, rests_on.first)


def _recomputed(per_sample: float | None, rate: float | None, rests_on: Basis) -> float | None:
    return per_sample * rate / rests_on.ranks if per_sample and rate and rests_on.ranks else None


def _utilization(log: RunLog, name: str, flops: float | None, rests_on: Basis) -> float | None:
    if rests_on.peak and flops:
        return flops / rests_on.peak
    return _printed(log, name, rests_on.first)


def _highest(log: RunLog, name: str) -> int | None:
    values = log.steps.column(name)
    return int(max(values)) if values else None


def _nan_steps(log: RunLog) -> int | None:
    counted = _highest(log, "nan_steps")
    if counted is not None:
        return counted
    losses = log.steps.column("loss")
    return len(losses) - sum(map(isfinite, losses)) if losses else None


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
