"""Figures of papers (``results/published/*.yaml``), with their sources, beside the figures measured here."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import Field, ValidationError

from hpcbench.collect.submission import Submission
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.section import Section
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Entry, Table
from hpcbench.present.notation import estimate, speed_interval
from hpcbench.report.compare import Cell, Row
from hpcbench.resources import data_dir
from hpcbench.study.yaml12 import read

Citation = Literal["first-hand", "second-hand", "derived"]
"""How a figure was read.

first-hand: in the paper's own text, its authors' documentation or code; second-hand: in another text about it;
derived: computed from first-hand figures.
"""


class Published(Section):
    """One figure of a paper."""

    what: str = Field(description="Measured quantity.")
    setting: str = Field(description="Model, machine, size.")
    quantity: Literal["speed_ratio", "flops_ratio", "tflops", "mfu", "wire_over_message", "mode_ratio"]
    value: float
    citation: Citation
    read_in: str = Field(description="Abstract, table, code: where the figure was read.")
    gpu: str | None = Field(None, description="Part of the name of the GPU that it is for.")
    schemes: list[str] = Field(default_factory=list, description="Patterns of the schemes to set beside it.")
    reference: str | None = Field(None, description="Source of this figure, if it is not the paper's.")
    note: str | None = None

    def concerns(self, scheme: str) -> bool:
        """Whether one of our schemes is of the figure's kind."""
        return any(fnmatchcase(scheme, pattern) for pattern in self.schemes)


class Paper(Section):
    """A paper and its figures."""

    paper: str
    authors: str
    reference: str
    figures: list[Published] = Field(min_length=1)


def papers(directory: Path | None = None) -> list[Paper]:
    """All papers, in the order of their files' names.

    Raises
    ------
    UserError
        A file is malformed.
    """
    directory = directory or data_dir("results/published")
    return [_read(path) for path in sorted(directory.glob("*.yaml"))]


def _read(path: Path) -> Paper:
    document = read(path)
    try:
        return Paper.model_validate(document.data)
    except ValidationError as error:
        raise make_user_error(error, Paper, document.where) from None


_COLUMNS = (
    Column("scheme", "scheme", words=True, help="The scheme of this study that is of the same kind."),
    Column("measured", "measured (95 % CI)", help="A ratio is of samples/s over the baseline's."),
    Column("value", "published"),
    Column("figure", "what was published", words=True, help="What was measured, and on what."),
    Column("reference", "source", words=True),
    Column(
        "citation",
        "citation",
        words=True,
        help="How the source was read, which says nothing of what was measured here. first-hand: in its own words;"
        " second-hand: in another's account of it; derived: computed from first-hand figures.",
    ),
)
_RATIOS = {"flops_ratio": "TFLOPS/GPU", "speed_ratio": "samples/s"}
"""Ratios of speed. Within one study model and sequence are the same, so that both are the ratio of step times."""


def published(submission: Submission, cells: Sequence[Cell], sources: Sequence[Paper] | None = None) -> Table | None:
    """Figures of papers with a counterpart in the study: the same kind of scheme, or the same GPU.

    Parameters
    ----------
    submission, cells
        The measured submission and its cells.
    sources
        The papers; those that come with the package by default.
    """
    known = [(paper, same) for paper in (papers() if sources is None else sources) for same in _together(paper)]
    rows = []
    notes: dict[str, None] = {}
    for cell in cells:
        where = "".join(f", {key} {value}" for key, value in cell.values.items())
        for row in cell.rows:
            for paper, figures in known:
                measured = _counterpart(figures[0], row, row.scheme == cell.baseline)
                if measured is not None:
                    scheme = Entry(make_printable(f"{row.scheme}{where}", 80), row.scheme)
                    rows.append((scheme, measured, *_said(paper, figures)))
                    notes |= {f"{_reference(paper, one)}: {one.note}": None for one in figures if one.note}
    if not rows:
        return None
    caution = "Other models, machines and baselines: a figure that differs is no fault, one that agrees no proof."
    return Table("published", "Beside published figures", _COLUMNS, tuple(rows), (*notes, caution))


def _together(paper: Paper) -> list[list[Published]]:
    """Return the figures of a paper.

    Ratios of speed from the same experiment are grouped, because they have one counterpart.
    """
    found: dict[str, list[Published]] = {}
    for figure in paper.figures:
        ratio = figure.quantity in _RATIOS
        key = figure.model_dump(exclude={"quantity", "value", "note"} if ratio else set())
        found.setdefault(repr(key), []).append(figure)
    return list(found.values())


def _said(paper: Paper, figures: Sequence[Published]) -> tuple[Entry, ...]:
    """Return the published values, their subject and their place, in words."""
    first, several = figures[0], len(figures) > 1
    what = f"{first.what}: {', '.join(_RATIOS[one.quantity] for one in figures)}" if several else first.what
    return (
        Entry(", ".join(_shown(one.quantity, one.value) for one in figures), first.value),
        Entry(f"{what} ({first.setting})", what),
        Entry(f"{_reference(paper, first)}: {first.read_in}", _reference(paper, first)),
        Entry(first.citation, first.citation),
    )


def _reference(paper: Paper, figure: Published) -> str:
    return figure.reference or paper.reference


def _counterpart(figure: Published, row: Row, baseline: bool) -> Entry | None:
    """Our measurement of the same kind; None if the figure is about something else."""
    if figure.quantity in _RATIOS:
        return estimate(row.speed, speed_interval) if figure.concerns(row.scheme) and row.speed else None
    if figure.quantity == "wire_over_message":
        value = row.wire_over_message
        known = figure.concerns(row.scheme) and isinstance(value, float)
        return Entry(_shown(figure.quantity, value), value) if known and isinstance(value, float) else None
    # Rates of a GPU were published of training without compression.
    alike = figure.concerns(row.scheme) if figure.schemes else baseline
    if figure.quantity in ("tflops", "mfu") and alike and figure.gpu and figure.gpu in _gpu(row):
        value = _mfu(row) if figure.quantity == "mfu" else row.model_flops_per_rank
        scaled = value / 1e12 if value is not None and figure.quantity == "tflops" else value
        return Entry("-" if scaled is None else _shown(figure.quantity, scaled), scaled)
    return None


def _mfu(row: Row) -> float | None:
    known = [run.mfu for run in row.runs if run.mfu is not None and run.run.state == "completed"]
    return fmean(known) if known else None


def _shown(quantity: str, value: float) -> str:
    if quantity == "tflops":
        return f"{value:.4g} TFLOPS"
    return f"{100 * value:.1f} %" if quantity == "mfu" else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _gpu(row: Row) -> str:
    return next((run.chip for run in row.runs if run.chip), "")
