"""Tables that compare predictions at submission time with measurements."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcbench.collect.submission import Submission
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.prediction_file import format_cell
from hpcbench.present.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.present.notation import name, percent, phrase, quantity, seconds_unit
from hpcbench.report.columns import SCHEME
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.predictions import StoredStep, read_predictions
from hpcbench.report.titles import write_title


@dataclass(frozen=True)
class _Line:
    """Prediction and measured step time (in seconds) of a scheme in a cell."""

    row: SchemeRow
    predicted: StoredStep | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """Relative prediction error: predicted divided by measured, minus 1."""
        return self.predicted.value / self.measured - 1 if self.predicted and self.measured else None


def tabulate_predicted(submission: Submission, cell: Cell) -> Table | None:
    """Make the table with a row per scheme, or return None if no prediction is based on measurements or data sheets."""
    lines = _list_lines(submission, cell)
    if not any(line.predicted for line in lines):
        return None
    predictions = [line.predicted.value for line in lines if line.predicted]
    unit = seconds_unit([*predictions, *(line.measured for line in lines)])

    def step(pick: Callable[[StoredStep], float]) -> Callable[[_Line], Entry]:
        return lambda line: quantity(pick(line.predicted) if line.predicted else None, unit.show)

    fields: list[Field[_Line]] = [
        (SCHEME, lambda line: name(line.row.scheme)),
        (
            Column(
                "predicted_step_seconds", f"predicted step ({unit.name})", help="Step time predicted at submission."
            ),
            step(lambda prediction: prediction.value),
        ),
        (
            Column("predicted_low_s", "from", help="Low end of the prediction's interval."),
            step(lambda prediction: prediction.low),
        ),
        (
            Column("predicted_high_s", "to", help="High end of the prediction's interval."),
            step(lambda prediction: prediction.high),
        ),
        (
            Column("measured_step_seconds", f"measured ({unit.name})", help="Geometric mean of the runs' means."),
            lambda line: quantity(line.measured, unit.show),
        ),
        (Column("prediction_error", "error", help="Predicted / measured - 1."), _show_error),
        (
            Column(
                "break_even_gbit_per_s",
                "pays below (Gbit/s)",
                help="Bandwidth of a node's network below which the scheme pays.",
            ),
            _show_break_even,
        ),
        (
            Column("prediction_basis", "rests on", text=True, help="The least certain input of the prediction."),
            lambda line: phrase(line.predicted.basis if line.predicted else ""),
        ),
    ]
    return tabulate("predicted", "Predicted and measured", lines, fields)


def tabulate_prediction_error(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the table of a submission's prediction errors, with one row per scheme and one row for all runs."""
    return tabulate_all_errors([(submission, cells)])


def tabulate_all_errors(sections: Sequence[tuple[Submission, list[Cell]]]) -> Table | None:
    """Make the table of prediction errors of several submissions, or return None if there are no predictions."""
    by_scheme: dict[str, list[tuple[float, str]]] = {}
    for submission, cells in sections:
        for cell in cells:
            where = write_title(cell)[0]
            for line in _list_lines(submission, cell):
                for run in line.row.counted:
                    if line.predicted and run.step_seconds:
                        error = line.predicted.value / run.step_seconds - 1
                        by_scheme.setdefault(line.row.scheme, []).append((error, where))
    if not by_scheme:
        return None
    every = [error for errors in by_scheme.values() for error in errors]
    rows = [*by_scheme.items(), ("all runs", every)]
    of_mean = Column("mean_error", "mean error", help="Mean of |predicted / measured - 1|.")
    fields: list[Field[tuple[str, list[tuple[float, str]]]]] = [
        (SCHEME, lambda row: name(row[0])),
        (Column("runs", "runs", help="Completed runs that were predicted."), lambda row: quantity(len(row[1]), str)),
        (of_mean, lambda row: quantity(statistics.mean(_list_sizes(row[1])), percent)),
        (
            Column("median_error", "median, signed", help="Median of predicted / measured - 1."),
            lambda row: quantity(statistics.median(error for error, _ in row[1]), percent),
        ),
        (
            Column("worst_error", "worst", help="Largest |predicted / measured - 1|."),
            lambda row: quantity(max(_list_sizes(row[1])), percent),
        ),
        (
            Column("worst_cell", "where", text=True, help="Cell of the worst prediction."),
            lambda row: phrase(max(row[1], key=lambda error: abs(error[0]))[1]),
        ),
    ]
    return tabulate("prediction-error", "Errors of the predictions", rows, fields)


def _list_lines(submission: Submission, cell: Cell) -> list[_Line]:
    """List the lines of a cell.

    The list is empty if all predictions are based on assumptions, because measurements cannot refute such predictions.
    """
    predictions = read_predictions(submission.root) if submission.root else {}
    grounded = {
        key: prediction for key, prediction in predictions.items() if prediction.basis != InputBasis.ASSUMED.value
    }
    return [_make_line(row, grounded) for row in cell.rows] if grounded else []


def _make_line(row: SchemeRow, predictions: dict[tuple[str, str], StoredStep]) -> _Line:
    cell = format_cell(row.runs[0].run.cell) if row.runs else ""
    return _Line(row, predictions.get((cell, row.scheme)), row.step_seconds.estimate if row.step_seconds else None)


def _show_error(line: _Line) -> Entry:
    if line.error is None or line.predicted is None or line.measured is None:
        return Entry()
    tone: Tone = "" if line.predicted.low <= line.measured <= line.predicted.high else "warning"
    return Entry(f"{100 * line.error:+.1f} %", line.error, tone)


def _show_break_even(line: _Line) -> Entry:
    at = line.predicted.break_even if line.predicted else None
    if at is None:
        return Entry()
    gbit = 8e-9 * at
    return Entry(f"{gbit:.3g}" if 0 < at < math.inf else "any" if at else "none", gbit)


def _list_sizes(errors: Iterable[tuple[float, str]]) -> list[float]:
    return [abs(error) for error, _ in errors]
