"""What papers report, beside what was measured here."""

from collections.abc import Sequence
from statistics import fmean

from hpcbench.collect.lines import printable
from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Entry, Table
from hpcbench.report.published import Paper, Published, papers
from hpcbench.report.statistics import Interval

_COLUMNS = (
    Column("figure", "published", words=True, help="What was measured, and on what."),
    Column("reference", "source", words=True),
    Column("mark", "mark", words=True, help="confirmed: read in the paper's own text; second-hand: in another's."),
    Column("value", "there"),
    Column("scheme", "here", words=True, help="The scheme of this study that is of the same kind."),
    Column("measured", "measured (95 % CI)"),
)


def published(submission: Submission, cells: Sequence[Cell], sources: Sequence[Paper] | None = None) -> Table | None:
    """Figures of papers that have a counterpart in the study: the same kind of scheme, or the same GPU.

    Parameters
    ----------
    submission, cells
        What was measured.
    sources
        The papers; those that come with the package by default.
    """
    rows = []
    notes: dict[str, None] = {}
    for paper in papers() if sources is None else sources:
        for figure in paper.figures:
            for cell in cells:
                for row in cell.rows:
                    measured = _counterpart(figure, row)
                    if measured is None:
                        continue
                    where = ", ".join(f"{key} {value}" for key, value in cell.values.items())
                    rows.append(
                        (
                            Entry(f"{figure.what} ({figure.setting})", figure.what),
                            Entry(paper.reference, paper.reference),
                            Entry(f"{figure.mark}: {figure.read_in}", figure.mark),
                            Entry(_shown(figure.quantity, figure.value), figure.value),
                            Entry(printable(f"{row.scheme}, {where}" if where else row.scheme, 80), row.scheme),
                            measured,
                        )
                    )
                    if figure.note:
                        notes[f"{paper.reference}: {figure.note}"] = None
    if not rows:
        return None
    caution = "Other models, machines and baselines: a figure that differs is no fault, one that agrees no proof."
    return Table("published", "Beside published figures", _COLUMNS, tuple(rows), (*notes, caution))


def _counterpart(figure: Published, row: Row) -> Entry | None:
    """What we measured of the same kind; None where the figure speaks of something else."""
    if figure.quantity in ("speed_ratio", "flops_ratio"):
        # Within one study model and sequence are the same, so that both ratios are the ratio of step times.
        return _interval(row.speed) if figure.concerns(row.scheme) and row.speed else None
    if figure.quantity == "wire_over_message":
        value = row.wire_over_message
        known = figure.concerns(row.scheme) and isinstance(value, float)
        return Entry(_shown(figure.quantity, value), value) if known and isinstance(value, float) else None
    if figure.quantity in ("tflops", "mfu") and figure.gpu and figure.gpu in _gpu(row):
        value = _mfu(row) if figure.quantity == "mfu" else row.model_flops_per_rank
        scaled = value / 1e12 if value is not None and figure.quantity == "tflops" else value
        return Entry("-" if scaled is None else _shown(figure.quantity, scaled), scaled)
    return None


def _mfu(row: Row) -> float | None:
    known = [run.mfu for run in row.runs if run.mfu is not None and run.run.state == "completed"]
    return fmean(known) if known else None


def _interval(interval: Interval) -> Entry:
    bounds = "" if interval.low is None or interval.high is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return Entry(f"{interval.estimate:.2f} x{bounds}", interval.estimate)


def _shown(quantity: str, value: float) -> str:
    if quantity == "tflops":
        return f"{value:.4g} TFLOPS"
    return f"{100 * value:.1f} %" if quantity == "mfu" else f"{value:.3f}" if value < 1 else f"{value:.2f} x"


def _gpu(row: Row) -> str:
    return next((run.chip for run in row.runs if run.chip), "")
