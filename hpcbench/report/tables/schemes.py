"""The schemes of one cell against each other: each two of them, over runs of equal pairing."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Table, Tone
from hpcbench.report.front import Duel, front
from hpcbench.report.notation import estimate, loss_interval, name, speed_interval
from hpcbench.report.tables.tabulate import Field, tabulate

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
