"""What each scheme learnt: losses at equal steps and at equal time, and steps that were lost."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.report.notation import estimate, loss_interval, name, quantity
from hpcbench.report.notation import loss as to_four
from hpcbench.report.tables.comparison import SCHEME
from hpcbench.report.tables.over_runs import highest, mean

_TONES: dict[str, Tone] = {"as good": "good", "better": "good", "worse": "bad", "not shown": "warning"}


def loss(submission: Submission, cell: Cell) -> Table | None:
    """Losses of the completed runs, each with what it shows of the scheme."""
    fields: list[Field[Row]] = [
        (SCHEME, lambda row: name(row.scheme)),
        (
            Column("loss_train", "loss", help="Training loss of the last step, mean of the runs."),
            lambda row: quantity(mean(row, lambda run: run.loss_train), to_four),
        ),
        (
            Column("loss_valid", "loss (valid)", help="Validation loss after the last step, mean of the runs."),
            lambda row: quantity(row.loss_valid, to_four),
        ),
        (
            Column(
                "loss_difference",
                "vs baseline at equal steps (95 % CI)",
                help="That loss minus the baseline's, with its interval.",
            ),
            lambda row: estimate(row.loss, loss_interval),
        ),
        (
            Column("loss_shown", "shown", words=True, help="What is shown of the loss at equal steps."),
            lambda row: _shown(row.loss_shown),
        ),
        (
            Column(
                "loss_in_time_difference",
                "vs baseline at equal time (95 % CI)",
                group=1,
                help="Training loss minus the baseline's when the faster run of a pair ended, with its interval.",
            ),
            lambda row: estimate(row.loss_in_time, loss_interval),
        ),
        (
            Column("loss_in_time_shown", "shown", words=True, group=1, help="What is shown of that loss."),
            lambda row: _shown(row.loss_in_time.shown if row.loss_in_time else None),
        ),
        (
            Column("skipped", "skipped steps", group=2, help="Steps that changed no weight, of the run with the most."),
            lambda row: quantity(highest(row, lambda run: run.skipped), _count),
        ),
        (
            Column("nan_steps", "NaN steps", group=2, help="Steps whose loss was no number, of the run with the most."),
            lambda row: quantity(highest(row, lambda run: run.nan_steps), _count),
        ),
    ]
    return tabulate("loss", "Loss", cell.rows, fields)


def _shown(words: str | None) -> Entry:
    return Entry(words, words, _TONES.get(words, "")) if words else Entry()


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
