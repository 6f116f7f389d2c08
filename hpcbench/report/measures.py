"""The numbers of one run: what its log says after the warm-up, and whether it agrees with itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from hpcbench.collect.lines import integer, member, number, printable, text
from hpcbench.collect.record import StepRecord
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.state import diverged_at
from hpcbench.collect.submission import RunResult
from hpcbench.report.provenance import differences
from hpcbench.train.measured import first_measured

Unknown = Literal["unknown"]
"""Of what the MPI library sent, where a scheme's variables may make it compress: it does not say."""
TOLERANCE = 0.01
"""Part by which a printed figure may differ from the one recomputed before it is worth a note."""


@dataclass(frozen=True)
class Measures:
    """Numbers of one run; None where its log does not give them."""

    run: RunResult
    steps: int
    """Steps that the throughput rests on."""
    step_seconds: float | None
    """Median over the steps after the warm-up."""
    samples_per_s: float | None
    """Global batch over the median step time."""
    tokens_per_s: float | None
    model_flops_per_rank: float | None
    """FLOP/s that the model needs, recomputed from shape, samples/s and ranks."""
    message_bytes: int
    wire_bytes: int | Unknown
    """Bytes before and after the codec, all ranks, steps after the warm-up."""
    loss_train: float | None
    """Loss of the last step."""
    loss_valid: float | None
    """Loss of the evaluation after the last step; None for a run that has not come so far."""
    diverged_at: int | None
    notes: tuple[str, ...]

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte; None for a run without traffic."""
        if self.wire_bytes == "unknown":
            return self.wire_bytes
        return self.wire_bytes / self.message_bytes if self.message_bytes else None


def measure(run: RunResult) -> Measures:
    """Take a run's numbers from its log."""
    log = run.log or RunLog(Path())
    records = throughput_steps(run, log)
    seconds = _median([r.seconds for r in records if r.seconds is not None and r.seconds > 0])
    batch = integer(run.settings, "train", "global_batch")
    length = integer(run.settings, "train", "seq_len")
    printed = _median([r.samples_per_s for r in records if r.samples_per_s is not None])
    rate = batch / seconds if batch and seconds else printed
    ranks = integer(run.settings, "ranks")
    per_sample = number(log.data("configuration"), "model_flops_per_sample")
    printed_flops = _median([r.model_flops_per_rank for r in records if r.model_flops_per_rank is not None])
    per_rank = per_sample / ranks if per_sample and ranks and ranks > 0 else None
    flops = per_rank * rate if per_rank and rate else printed_flops
    counted = [r for r in records if r.message_bytes is not None and r.wire_bytes is not None]
    last = log.last_step
    return Measures(
        run=run,
        steps=len(records),
        step_seconds=seconds,
        samples_per_s=rate,
        tokens_per_s=rate * length if rate and length else None,
        model_flops_per_rank=flops,
        message_bytes=sum(r.message_bytes or 0 for r in counted),
        wire_bytes="unknown" if own_environment(run) else sum(r.wire_bytes or 0 for r in counted),
        loss_train=last.loss if last else None,
        loss_valid=log.final_loss(),
        diverged_at=diverged_at(run.log),
        notes=tuple(_notes(run, log, records, batch, per_rank)),
    )


def all_notes(runs: Iterable[Measures]) -> list[str]:
    """What there is to say of the runs, each thing once, and of what they differ in beside what is compared."""
    own = list(runs)
    notes = [note for run in own for note in run.notes]
    return list(dict.fromkeys([*notes, *differences([run.run for run in own])]))


def throughput_steps(run: RunResult, log: RunLog) -> list[StepRecord]:
    """The steps after the warm-up: the first ones fill caches and buffers, and would slow the faster scheme most."""
    warmup = integer(run.settings, "train", "warmup_steps") or 0
    first = first_measured(warmup, log.planned_steps or 0, log.resumed_from)
    return [record for record in log.steps.values() if record.step >= first]


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


def _notes(
    run: RunResult, log: RunLog, records: list[StepRecord], batch: int | None, per_rank: float | None
) -> list[str]:
    found = _resumed(run, log, records) + _binding(log)
    timed = [r for r in records if r.seconds is not None and r.seconds > 0]
    rates = [r.samples_per_s * r.seconds / batch for r in timed if r.samples_per_s and r.seconds and batch]
    flops = [
        r.model_flops_per_rank * r.seconds / per_rank / batch
        for r in timed
        if r.model_flops_per_rank and r.seconds and batch and per_rank
    ]
    # Step by step, because the median of an even number of steps does not commute with taking the inverse.
    for name, ratios in (("samples/s", rates), ("model FLOP/s", flops)):
        ratio = _median(ratios)
        if ratio is not None and not abs(ratio - 1) <= TOLERANCE:
            found.append(f"{run.id}: {log.path}: the {name} printed are {ratio:.3g} times what the step times give")
    missing = log.missing_steps()
    if missing:
        found.append(f"{run.id}: {log.path}: step {missing[0]} is not in the log" + _more(len(missing) - 1))
    if log.notes and run.state not in ("running", "pending"):
        first = log.notes[0]
        found.append(f"{run.id}: {log.where(first.line)}: {first.why}" + _more(len(log.notes) - 1))
    end = log.data("end")
    last = log.last_step
    if run.state == "completed" and last is not None and integer(end, "steps") != last.step:
        found.append(f"{run.id}: {log.path}: the end event says {end.get('steps')} steps, the log holds {last.step}")
    if run.state == "completed" and log.final_loss() is None:
        found.append(f"{run.id}: {log.path}: no evaluation after the last step")
    return found


def _resumed(run: RunResult, log: RunLog, records: list[StepRecord]) -> list[str]:
    if not log.resumed_from:
        return []
    attempt = integer(log.data("start"), "attempt")
    again = f" (attempt {attempt})" if attempt else ""
    counted = f": steps {records[0].step} to {records[-1].step} count for its speed" if records else ""
    return [f"{run.id}: was resumed at step {log.resumed_from}{again}{counted}"]


def _binding(log: RunLog) -> list[str]:
    """Without the run's name: most runs of a study lie alike, and what all say is shown once."""
    warnings = log.data("binding").get("warnings")
    return [printable(words) for words in warnings if isinstance(words, str)] if isinstance(warnings, list) else []


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
