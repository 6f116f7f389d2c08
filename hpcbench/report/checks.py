"""Whether a run's log agrees with itself: each mismatch is a sentence that names the line and both figures.

Nothing is corrected and nothing averaged away: who reads the numbers is told what does not fit.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from hpcbench.collect.lines import integer, number, printable, text
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.collect.times import elapsed
from hpcbench.report.basis import Basis, flops_of
from hpcbench.report.relations import TOLERANCE, Mismatch, Relation, mismatch
from hpcbench.report.traffic import TimeSplit, Traffic, Unknown, counted, total, window

_CLOCK = 1.0
"""Seconds by which the clocks of a machine may disagree while it runs."""
_COUNTS = {"consumed_samples": 1.0}
"""Of what no framework rounds."""
_UNITS = {
    "seconds": 1e-6,
    "samples_per_s": 1e-2,
    "model_flops_per_rank": 1e6,
    "hardware_flops_per_rank": 1e6,
}
"""Of the last digits in our own lines."""
_FLOPS = {
    "model_flops_per_rank": "model FLOP/s",
    "hardware_flops_per_rank": "hardware FLOP/s",
    "unlabelled_flops_per_rank": "FLOP/s",
}


def notes(
    run: RunResult, log: RunLog, basis: Basis, channels: tuple[Traffic, ...], time: TimeSplit | None
) -> Iterator[str]:
    """What a reader of the run's numbers must know, a sentence each.

    Parameters
    ----------
    channels
        What each channel carried.
    time
        Where the time of a step went.
    """
    own = _Run(run, log, basis, channels, time)
    yield from own.resumed()
    yield from own.binding()
    yield from own.rates()
    yield from own.ratios()
    yield from own.conventions()
    yield from own.peaks()
    yield from own.consumed()
    yield from own.losses()
    yield from own.bytes()
    yield from own.wire()
    yield from own.waiting()
    yield from own.times()
    yield from own.damage()
    yield from own.end()


class _Run:
    def __init__(
        self, run: RunResult, log: RunLog, basis: Basis, channels: tuple[Traffic, ...], time: TimeSplit | None
    ) -> None:
        self._run, self._log, self._basis, self._channels, self._time = run, log, basis, channels, time
        self._id = printable(run.id, 80)

    def _mismatch(self, relation: Relation) -> Mismatch | None:
        return mismatch(self._log.steps, relation, _UNITS if self._log.dialect == "hpcbench" else _COUNTS)

    def _at(self, line: int | None, words: str) -> str:
        place = printable(str(self._log.path) if line is None else self._log.where(line))
        return f"{self._id}: {place}: {words}"

    def resumed(self) -> Iterator[str]:
        if not self._log.resumed_from:
            return
        attempt = integer(self._log.data("start"), "attempt")
        again = f" (attempt {attempt})" if attempt else ""
        steps = self._log.steps.column("step", first=self._basis.first)
        counted = f": steps {steps[0]} to {steps[-1]} count for its speed" if steps else ""
        yield f"{self._id}: was resumed at step {self._log.resumed_from}{again}{counted}"

    def binding(self) -> Iterator[str]:
        """Without the run's name: most runs of a study lie alike, and what all say is shown once."""
        warnings = self._log.data("binding").get("warnings")
        yield from (printable(words) for words in _list(warnings) if isinstance(words, str))

    def rates(self) -> Iterator[str]:
        """What is printed a second, against what a step holds and how long it took."""
        basis = self._basis
        # the batch of each step where lines give it: some frameworks let it grow
        over = "samples" if basis.batch is None and self._log.steps.column("samples") else None
        batch = basis.batch or (1 if over else None)
        ranks = basis.ranks
        tokens = batch * basis.seq_len if batch and basis.seq_len else None
        work: dict[str, tuple[str, float | None]] = {
            "samples/s": ("samples_per_s", batch),
            "tokens/s": ("tokens_per_s", tokens),
            "tokens/s of a rank": ("tokens_per_s_per_rank", tokens / ranks if tokens and ranks else None),
            "model FLOP/s": ("model_flops_per_rank", self._flops(basis.model_flops, batch)),
            "hardware FLOP/s": ("hardware_flops_per_rank", self._flops(basis.hardware_flops, batch)),
            "FLOP/s": ("unlabelled_flops_per_rank", None),
        }
        for words, (column, expected) in work.items():
            found = self._mismatch(Relation(column, times="seconds", over=over, expected=expected))
            if found:
                yield self._off(words, found, "what the step times give")

    def ratios(self) -> Iterator[str]:
        """Figures that are the same multiple of each other at every step."""
        for words, column, over, expected in (
            ("tokens/s over tokens/s of a rank", "tokens_per_s", "tokens_per_s_per_rank", self._basis.ranks),
            ("consumed tokens over consumed samples", "consumed_tokens", "consumed_samples", self._basis.seq_len),
            ("hardware over model FLOP/s", "hardware_flops_per_rank", "model_flops_per_rank", None),
        ):
            found = self._mismatch(Relation(column, over=over, expected=expected))
            if found:
                figures = f"{found.value:.4g}, and {found.expected:.4g} {_source(found)}"
                yield self._at(found.line, f"{words} is {figures}")

    def _flops(self, per_sample: float | None, batch: int | None) -> float | None:
        """Of a rank in a step."""
        return per_sample * batch / self._basis.ranks if per_sample and batch and self._basis.ranks else None

    def _off(self, words: str, found: Mismatch, what: str) -> str:
        figures = f"{found.printed:.4g} printed, {found.recomputed:.4g} {_source(found)}"
        convention = self._convention(words, found)
        return self._at(found.line, f"the {words} printed are {found.ratio:.3g} times {what}: {figures}{convention}")

    def _convention(self, words: str, found: Mismatch) -> str:
        """The formula that gives what was printed, if one does."""
        basis = self._basis
        per_sample = {"model FLOP/s": basis.model_flops, "hardware FLOP/s": basis.hardware_flops}.get(words)
        if basis.shape is None or per_sample is None:
            return ""
        for name, flops in flops_of(basis.shape).items():
            if abs(per_sample * found.ratio / flops - 1) <= TOLERANCE:
                return f", which is what {name} gives"
        return ""

    def conventions(self) -> Iterator[str]:
        """Work of a sample as the run states it, and FLOP/s without a label, against the formulas for its shape."""
        basis = self._basis
        if basis.shape is None:
            return
        formulas = flops_of(basis.shape)
        event = self._log.event("configuration")
        for words, stated, names in (
            ("model_flops_per_sample", basis.model_flops, list(formulas)[:1]),
            ("hardware_flops_per_sample", basis.hardware_flops, list(formulas)[:2]),
        ):
            if stated and event and not any(abs(stated / formulas[name] - 1) <= TOLERANCE for name in names):
                yield self._at(
                    event.line, f"{words} is {stated:.4g}, and {formulas[names[-1]]:.4g} by the formula for its shape"
                )
        if not basis.batch or not basis.ranks:
            return
        found = [
            self._mismatch(Relation("unlabelled_flops_per_rank", "seconds", None, self._flops(work, basis.batch)))
            for work in formulas.values()
        ]
        if all(found):
            nearest = min((one for one in found if one), key=lambda one: abs(one.ratio - 1))
            yield self._off("FLOP/s", nearest, "what the nearest formula for the run's shape gives")

    def peaks(self) -> Iterator[str]:
        """FLOP/s against what the chip can do, and against the part of it that is claimed."""
        peak, steps = self._basis.peak, self._log.steps
        for column, words in _FLOPS.items():
            most = max(steps.column(column), default=0.0)
            if peak and most > peak:
                line = self._line(column, most)
                chip = f" of a rank's share of {printable(self._basis.chip, 60)}" if self._basis.chip else ""
                yield self._at(
                    line, f"{most:.4g} {words} a rank cannot be: the dense peak{chip} is {peak:.4g} ({most / peak:.0%})"
                )
        for column, claim in (("model_flops_per_rank", "mfu"), ("hardware_flops_per_rank", "hfu")):
            most = max(steps.column(claim), default=0.0)
            if most > 1:
                yield self._at(
                    self._line(claim, most), f"{claim.upper()} {most:.1%} cannot be: a chip gives 100 % at most"
                )
            found = self._mismatch(Relation(claim, over=column, expected=1 / peak if peak else None))
            if found:
                figures = f"{found.printed:.4g} is claimed, and {found.recomputed:.4g} {_source(found)}"
                yield self._at(found.line, f"{claim.upper()}: {figures}, from FLOP/s and the chip's peak")

    def _line(self, column: str, value: float) -> int:
        return int(next(line for line, found in self._log.steps.columns("line", column) if found == value))

    def consumed(self) -> Iterator[str]:
        """Samples since the run began, against batch times steps."""
        sizes = {self._basis.batch} if self._basis.batch else set(self._log.steps.column("samples"))
        if len(sizes) != 1:
            return  # unknown, or growing
        (batch,) = sizes
        for line, step, consumed in self._log.steps.columns("line", "step", "consumed_samples"):
            if consumed != step * batch:
                words = f"{consumed:.0f} consumed samples, and {step * batch:.0f} by {step:.0f} steps of {batch:.0f}"
                yield self._at(int(line), words)
                return

    def losses(self) -> Iterator[str]:
        if all(map(isfinite, self._log.steps.column("loss"))):
            return
        rows = [row for row in self._log.steps.columns("line", "step", "loss") if not isfinite(row[2])]
        line, step, loss = rows[0]
        yield self._at(int(line), f"the loss of step {step:.0f} is {loss}" + _more(len(rows) - 1))

    def bytes(self) -> Iterator[str]:
        """What the channels counted, against the lines of the same steps: whole numbers, which must be equal."""
        event = self._log.event("traffic")
        if not event or not self._channels:
            return
        steps = window(self._log)
        sums: dict[str, list[int | Unknown]] = {
            "message": [channel.message_bytes for channel in self._channels],
            "wire": [channel.wire_bytes for channel in self._channels],
        }
        for name, values in sums.items():
            sent, printed = total(values), counted(self._log, f"{name}_bytes")
            if sent != "unknown" and len(printed) == len(steps) and sent != sum(printed):
                said = f"the lines of steps {steps.start} to {steps.stop - 1} say {sum(printed):.0f}"
                yield self._at(event.line, f"the channels' {name} bytes are {sent}, {said}")

    def wire(self) -> Iterator[str]:
        """A codec that makes messages larger, and one that is none and changes them."""
        event = self._log.event("traffic")
        for channel in self._channels if event else ():
            wire, message = channel.wire_bytes, channel.message_bytes
            if event is None or wire == "unknown" or channel.codec is None:
                continue
            name = " ".join(word for word in (channel.dimension, channel.phase, channel.kind) if word)
            if channel.codec == "none" and wire != message:
                yield self._at(event.line, f"{name}: {wire} wire bytes for {message} message bytes, without a codec")
            elif wire > message:
                yield self._at(
                    event.line,
                    f"{name}: {channel.codec} makes messages larger: {wire} wire bytes for {message} message bytes",
                )

    def waiting(self) -> Iterator[str]:
        """No rank waits for longer than a step takes."""
        event, time = self._log.event("traffic"), self._time
        if event and time and time.exposed > time.step * (1 + TOLERANCE):
            words = f"ranks waited {time.exposed:.4g} s a step for messages, and a step took {time.step:.4g} s"
            yield self._at(event.line, words)

    def times(self) -> Iterator[str]:
        """Steps against the run, and the run against the clock."""
        event = self._log.event("end")
        if not event:
            return
        steps, whole = sum(filter(isfinite, self._log.steps.column("seconds"))), number(event.data, "seconds")
        if whole is not None and steps > whole * (1 + TOLERANCE):
            yield self._at(event.line, f"the run took {whole:.3f} s, its steps {steps:.3f} s")
        clock = elapsed(text(self._log.data("start"), "time"), text(event.data, "time"))
        if whole is not None and clock is not None and whole > clock * (1 + TOLERANCE) + _CLOCK:
            yield self._at(
                event.line, f"the run took {whole:.3f} s, and {clock:.3f} s by the times of its start and end"
            )

    def damage(self) -> Iterator[str]:
        """Lines that are not whole, or missing where each step has one."""
        log = self._log
        missing = log.missing_steps() if log.dialect == "hpcbench" else []
        if missing:
            yield self._at(None, f"step {missing[0]} is not in the log" + _more(len(missing) - 1))
        if log.notes and self._run.state not in ("running", "pending"):
            first = log.notes[0]
            yield self._at(first.line, first.why + _more(len(log.notes) - 1))

    def end(self) -> Iterator[str]:
        """Whether a run that completed has come to its end."""
        log, event = self._log, self._log.event("end")
        if self._run.state != "completed" or log.dialect != "hpcbench":
            return
        if log.last_step is not None and (not event or integer(event.data, "steps") != log.last_step.step):
            said = printable(str(event.data.get("steps")), 20) if event else None
            line = event.line if event else None
            yield self._at(line, f"the end event says {said} steps, the log holds {log.last_step.step}")
        if log.final_loss() is None:
            yield self._at(None, "no evaluation after the last step")


def _source(found: Mismatch) -> str:
    source = "recomputed" if found.reference is None else f"by line {found.reference}"
    return f"{source} ({found.count} of {found.of} steps)"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
