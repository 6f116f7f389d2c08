"""The schemes of one cell beside the baseline: the question of the study, in one table."""

from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import GOOD, NOT_FASTER, NOT_SHOWN, WORSE, Cell, Row
from hpcbench.report.document import Column, Entry, Table, Tone
from hpcbench.report.measures import is_gpu
from hpcbench.report.notation import (
    estimate,
    flops_unit,
    loss,
    loss_interval,
    name,
    phrase,
    quantity,
    ratio,
    speed_interval,
)
from hpcbench.report.tables.tabulate import tabulate
from hpcbench.report.titles import example

CHANGE = "vs baseline (95 % CI)"
SCHEME = Column("scheme", "scheme", words=True, help="Which codec works on which dimension, by its name in the study.")
_TONES: tuple[tuple[str, Tone], ...] = ((GOOD, "good"), (WORSE, "warning"), (NOT_FASTER, ""), (NOT_SHOWN, "warning"))


def comparison(submission: Submission, cell: Cell) -> Table | None:
    """Speed, wire bytes, loss and verdict of each scheme."""
    unit = flops_unit([row.model_flops_per_rank for row in cell.rows], is_gpu(example(cell)))
    fields = [
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
            Column("verdict", "verdict", words=True, group=1, help="What is shown of speed and loss together."),
            lambda row: phrase(row.verdict, tone(row)),
        ),
    ]
    return tabulate("comparison", "", cell.rows, fields, always=len(fields))


def rate(row: Row) -> Entry:
    """Samples/s, with the mark of runs that did not complete."""
    entry = quantity(row.samples_per_s)
    return replace(entry, shown=f"{entry.shown}*") if row.partial else entry


def tone(row: Row) -> Tone:
    """How good the news of a verdict is."""
    known = (tone for words, tone in _TONES if row.verdict.startswith(words))
    return next(known, "bad" if row.verdict else "")
