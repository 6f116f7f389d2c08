"""The schemes of one cell beside the baseline, and each two against each other."""

from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.report.front import Duel, front
from hpcbench.report.measures import is_gpu
from hpcbench.report.notation import (
    estimate,
    flops_unit,
    loss,
    loss_interval,
    name,
    percent,
    phrase,
    quantity,
    ratio,
    speed_interval,
)
from hpcbench.report.titles import example
from hpcbench.report.traffic import Unknown
from hpcbench.report.weaknesses import weakened

CHANGE = "vs baseline (95 % CI)"
SCHEME = Column("scheme", "scheme", words=True, help="Which codec works on which dimension, by its name in the study.")
CODED = Column(
    "coded_part", "coded", help="Bytes that went through a codec, as a part of those that the scheme has a codec for."
)


def comparison(submission: Submission, cell: Cell) -> Table | None:
    """Speed, wire bytes, loss and verdict of each scheme."""
    weak = weakened(cell)
    unit = flops_unit([row.model_flops_per_rank for row in cell.rows], is_gpu(example(cell)))
    fields: list[Field[Row]] = [
        (SCHEME, lambda row: name(row.scheme)),
        (
            Column(
                "model_flops_per_rank",
                unit.name,
                help="FLOP/s that the model needs, recomputation not counted: from its shape and the median step time.",
            ),
            lambda row: quantity(row.model_flops_per_rank, unit.show),
        ),
        (
            Column("samples_per_s", "samples/s", help="Global batch over the median step time, mean of the runs."),
            rate,
        ),
        (
            Column("speed_ratio", CHANGE, help="Samples/s over the baseline's in the same pairing, with its interval."),
            lambda row: estimate(row.speed, speed_interval),
        ),
        (
            Column("wire_over_message", "wire/message", help="Bytes after the codec per byte before it."),
            lambda row: Entry(ratio(row.wire_over_message), row.wire_over_message),
        ),
        (
            Column("loss_valid", "loss (valid)", group=1, help="Validation loss after the last step, mean of runs."),
            lambda row: quantity(row.loss_valid, loss),
        ),
        (
            Column("loss_difference", CHANGE, group=1, help="That loss minus the baseline's, with its interval."),
            lambda row: estimate(row.loss, loss_interval),
        ),
        (
            Column(
                "verdict",
                "verdict",
                words=True,
                group=1,
                help="What is shown of speed and loss together; letters stand for what weakens it, below the table.",
            ),
            lambda row: _verdict(row, weak.mark(row.scheme)),
        ),
    ]
    if any(isinstance(row.coded_part, float) and row.coded_part < 1 for row in cell.rows):
        # What is as its name says needs no column.
        fields.insert(5, (CODED, lambda row: part(row.coded_part)))
    return tabulate("comparison", "", cell.rows, fields, always=len(fields))


def rate(row: Row) -> Entry:
    """Samples/s, with the mark of runs that did not complete."""
    entry = quantity(row.samples_per_s)
    return replace(entry, shown=f"{entry.shown}*") if row.partial else entry


def part(value: float | Unknown | None) -> Entry:
    """A part of some bytes, which may be unknown; as a warning where it is none of them."""
    shown = value if isinstance(value, str) else percent(value)
    return Entry(shown, value, "bad" if value == 0 else "")


def _verdict(row: Row, mark: str) -> Entry:
    """The verdict, with the letters of what weakens it."""
    entry = phrase(row.verdict, tone(row))
    return replace(entry, shown=f"{entry.shown} {mark}") if mark and row.verdict else entry


def tone(row: Row) -> Tone:
    """How good the news of a verdict is."""
    if row.diverged or (not row.completed and row.verdict):
        return "bad"
    if row.idle:
        return "warning"
    return row.outcome.tone if row.outcome else "bad" if row.verdict else ""


_TOGETHER: dict[bool | None, tuple[str, Tone]] = {
    True: ("beats it", "good"),
    False: ("is beaten", "bad"),
    None: ("", ""),
}


def schemes(submission: Submission, cell: Cell) -> Table | None:
    """A row for each two schemes, those with the baseline first."""
    fields: list[Field[Duel]] = [
        (Column("scheme", "scheme", words=True, help="One scheme."), lambda duel: name(duel.scheme)),
        (Column("other", "against", words=True, help="Another one."), lambda duel: name(duel.other)),
        (
            Column("speed_ratio", "speed (95 % CI)", help="Samples/s of the first over the second's, pair by pair."),
            lambda duel: estimate(duel.speed, speed_interval),
        ),
        (Column("speed_shown", "shown", words=True, help="What is shown of the speed of the first."), _speed),
        (
            Column(
                "loss_difference", "loss (95 % CI)", group=1, help="Validation loss of the first minus the second's."
            ),
            lambda duel: estimate(duel.loss, loss_interval),
        ),
        (Column("loss_shown", "shown", words=True, group=1, help="What is shown of the loss of the first."), _loss),
        (
            Column(
                "together",
                "together",
                words=True,
                group=1,
                help="Which beats the other: in speed or loss, and is as good or better in the other.",
            ),
            _together,
        ),
    ]
    found = front(cell)
    note = f"On the front, where nothing is shown to beat them: {', '.join(found.unbeaten)}."
    return tabulate("schemes", "Schemes against each other", found.duels, fields, notes=[note], always=2)


def _speed(duel: Duel) -> Entry:
    if duel.speed is None:
        return Entry()
    words = "slower" if duel.speed.slower else duel.speed.shown
    return Entry(words, words)


def _loss(duel: Duel) -> Entry:
    return Entry(duel.loss.shown, duel.loss.shown) if duel.loss else Entry()


def _together(duel: Duel) -> Entry:
    words, tone = _TOGETHER[True if duel.beats else False if duel.turned().beats else None]
    return Entry(words, words or None, tone)
