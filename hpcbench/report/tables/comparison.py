"""Tables that compare the schemes of one cell with the baseline and with each other."""

from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.features.energy.report.table import make_speed_columns
from hpcbench.features.network.report.table import list_columns
from hpcbench.present.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.present.notation import (
    estimate,
    loss_interval,
    name,
    phrase,
    speed_interval,
)
from hpcbench.report.columns import LOSS, SCHEME_NAME, SPEED, make_columns, make_rate_column, show_finding
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.duels import Duel
from hpcbench.report.front import compute_front
from hpcbench.report.quantities.speed import LOSS_VALID
from hpcbench.report.quantities.traffic import CODED, WIRE
from hpcbench.report.sentences import OTHER_SYSTEM, STAR
from hpcbench.report.weaknesses import Weakened

VERDICT = Column(
    "verdict",
    "verdict",
    text=True,
    help="Finding about speed and loss together. Letters refer to the footnotes of the table.",
)


def tabulate_comparison(cell: Cell, weak: Weakened, *, explain: bool = True) -> Table | None:
    """Make the table of verdicts, speeds, losses and wire bytes of the schemes.

    With `explain`, footnotes explain the letters next to verdicts.
    """
    rows = cell.rows
    # A column that contains only 100 % is omitted.
    partly = any(isinstance(row.coded_part, float) and row.coded_part < 1 for row in rows)
    fields: list[Field[SchemeRow]] = [
        SCHEME_NAME,
        (VERDICT, lambda row: make_verdict_entry(row, weak)),
        make_rate_column(rows),
        SPEED.field(),
        *make_speed_columns(rows),
        *make_columns([LOSS_VALID], rows, group=1),
        LOSS.field(group=1),
        *make_columns([WIRE, CODED] if partly else [WIRE], rows, group=1),
        *list_columns(rows),
    ]
    notes = [
        OTHER_SYSTEM.format(scheme=row.scheme, changes=make_printable(changes))
        for row in rows
        if (changes := row.runs[0].run.settings.scheme.process_changes)
    ]
    notes += [weak.legend] * (explain and bool(weak.reasons)) + [STAR] * any(row.partial for row in rows)
    return tabulate("comparison", "", rows, fields, notes=notes, always=len(fields))


def make_verdict_entry(row: SchemeRow, weak: Weakened) -> Entry:
    """Make the entry of a verdict, with the letters of its weaknesses."""
    entry, mark = phrase(row.verdict, choose_tone(row)), weak.mark(row.scheme)
    return replace(entry, shown=f"{entry.shown} {mark}") if mark and row.verdict else entry


def choose_tone(row: SchemeRow) -> Tone:
    """Choose the tone of a verdict."""
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


def tabulate_schemes(submission: Submission, cell: Cell) -> Table | None:
    """Make the table with one row per pair of schemes, starting with pairs that include the baseline."""
    fields: list[Field[Duel]] = [
        (Column("scheme", "scheme", text=True, help="First scheme."), lambda duel: name(duel.scheme)),
        (Column("other", "against", text=True, help="Second scheme."), lambda duel: name(duel.other)),
        (
            Column(
                "speed_ratio",
                "speed (95 % CI)",
                help="Samples/s of the first scheme divided by those of the second, pair by pair.",
            ),
            lambda duel: estimate(duel.speed, speed_interval),
        ),
        (Column("speed_shown", "shown", text=True, help="Finding about the speed of the first scheme."), _show_speed),
        (
            Column(
                "loss_difference",
                "loss (95 % CI)",
                group=1,
                help="Validation loss of the first scheme minus that of the second.",
            ),
            lambda duel: estimate(duel.loss, loss_interval),
        ),
        (
            Column("loss_shown", "shown", text=True, group=1, help="Finding about the loss of the first scheme."),
            lambda duel: show_finding(duel.loss.shown if duel.loss else None),
        ),
        (
            Column(
                "together",
                "together",
                text=True,
                group=1,
                help="Whether the first scheme beats the second or is beaten. A scheme beats another if either speed "
                "or loss is better, and neither is worse.",
            ),
            _show_both,
        ),
    ]
    result = compute_front(cell)
    note = f"Pareto front (no scheme significantly beats these): {', '.join(result.unbeaten)}."
    return tabulate("schemes", "Schemes against each other", result.duels, fields, notes=[note], always=2)


def _show_speed(duel: Duel) -> Entry:
    return show_finding(None if duel.speed is None else "slower" if duel.speed.slower else duel.speed.shown)


def _show_both(duel: Duel) -> Entry:
    text, tone = _TOGETHER[True if duel.beats else False if duel.turn().beats else None]
    return Entry(text, text or None, tone)
