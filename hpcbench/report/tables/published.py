"""Comparison of published values (``results/published/*.yaml``) with measurements."""

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
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.resources import data_dir
from hpcbench.study.yaml12 import read

Citation = Literal["first-hand", "second-hand", "derived"]
"""Kind of citation of a published value.

first-hand: from the paper itself, or its authors' documentation or code; second-hand: from another text about the
paper; derived: computed from first-hand values.
"""


class Published(Section):
    """A published value."""

    what: str = Field(description="Measured quantity.")
    setting: str = Field(description="Model, machine, size.")
    quantity: Literal["speed_ratio", "flops_ratio", "tflops", "mfu", "wire_over_message", "mode_ratio"]
    value: float
    citation: Citation
    read_in: str = Field(description="Place of the figure, such as abstract, table or code.")
    gpu: str | None = Field(None, description="Part of the name of the GPU that the figure is for.")
    schemes: list[str] = Field(default_factory=list, description="Patterns of the schemes to compare with the figure.")
    reference: str | None = Field(None, description="Source of this figure, if it is not the paper's.")
    note: str | None = None

    def concerns(self, scheme: str) -> bool:
        """Return whether the published value applies to an hpcbench scheme."""
        return any(fnmatchcase(scheme, pattern) for pattern in self.schemes)


class Paper(Section):
    """A paper and its published values."""

    paper: str
    authors: str
    reference: str
    figures: list[Published] = Field(min_length=1)


def read_papers(directory: Path | None = None) -> list[Paper]:
    """Read all papers, sorted by file name."""
    directory = directory or data_dir("results/published")
    return [_read(path) for path in sorted(directory.glob("*.yaml"))]


def _read(path: Path) -> Paper:
    document = read(path)
    try:
        return Paper.model_validate(document.data)
    except ValidationError as error:
        raise make_user_error(error, Paper, document.where) from None


_COLUMNS = (
    Column("scheme", "scheme", text=True, help="Scheme of this study that is of the same kind."),
    Column("measured", "measured (95 % CI)", help="A ratio is samples/s divided by the baseline's."),
    Column("value", "published"),
    Column("figure", "what was published", text=True, help="Quantity that was measured, and its setting."),
    Column("reference", "source", text=True),
    Column(
        "citation",
        "citation",
        text=True,
        help="How the source was read. This does not concern the measurement here. first-hand: in the source itself; "
        "second-hand: in another text about the source; derived: computed from first-hand figures.",
    ),
)
_RATIOS = {"flops_ratio": "TFLOPS/GPU", "speed_ratio": "samples/s"}
"""Speed ratios. Both ratios equal the inverse ratio of step times, because model and sequence length are fixed."""


def tabulate_published(
    submission: Submission, cells: Sequence[Cell], sources: Sequence[Paper] | None = None
) -> Table | None:
    """Make the table of published values with a counterpart in the study (same kind of scheme or same GPU)."""
    compared = [
        (paper, same) for paper in (read_papers() if sources is None else sources) for same in _group_figures(paper)
    ]
    rows = []
    notes: dict[str, None] = {}
    for cell in cells:
        where = "".join(f", {key} {value}" for key, value in cell.values.items())
        for row in cell.rows:
            for paper, figures in compared:
                measured = _find_counterpart(figures[0], row, row.scheme == cell.baseline)
                if measured is not None:
                    scheme = Entry(make_printable(f"{row.scheme}{where}", 80), row.scheme)
                    rows.append((scheme, measured, *_write_entries(paper, figures)))
                    notes |= {
                        f"{_find_reference(paper, figure)}: {figure.note}": None for figure in figures if figure.note
                    }
    if not rows:
        return None
    caution = (
        "Models, machines and baselines differ: a difference from a published figure is not an error, and "
        "agreement does not prove anything."
    )
    return Table("published", "Comparison with published figures", _COLUMNS, tuple(rows), (*notes, caution))


def _group_figures(paper: Paper) -> list[list[Published]]:
    """Group a paper's values: speed ratios from the same experiment are compared with the same measurement."""
    groups: dict[str, list[Published]] = {}
    for figure in paper.figures:
        ratio = figure.quantity in _RATIOS
        key = figure.model_dump(exclude={"quantity", "value", "note"} if ratio else set())
        groups.setdefault(repr(key), []).append(figure)
    return list(groups.values())


def _write_entries(paper: Paper, figures: Sequence[Published]) -> tuple[Entry, ...]:
    """Make entries for the published values, subject, source and citation."""
    first, several = figures[0], len(figures) > 1
    what = f"{first.what}: {', '.join(_RATIOS[figure.quantity] for figure in figures)}" if several else first.what
    return (
        Entry(", ".join(_format_figure(figure.quantity, figure.value) for figure in figures), first.value),
        Entry(f"{what} ({first.setting})", what),
        Entry(f"{_find_reference(paper, first)}: {first.read_in}", _find_reference(paper, first)),
        Entry(first.citation, first.citation),
    )


def _find_reference(paper: Paper, figure: Published) -> str:
    return figure.reference or paper.reference


def _find_counterpart(figure: Published, row: SchemeRow, baseline: bool) -> Entry | None:
    """Make the entry of the corresponding measurement, or return None if there is no such measurement."""
    if figure.quantity in _RATIOS:
        return estimate(row.speed, speed_interval) if figure.concerns(row.scheme) and row.speed else None
    if figure.quantity == "wire_over_message":
        value = row.wire_over_message
        return (
            Entry(_format_figure(figure.quantity, value), value)
            if figure.concerns(row.scheme) and isinstance(value, float)
            else None
        )
    # Published GPU rates refer to training without compression.
    same_kind = figure.concerns(row.scheme) if figure.schemes else baseline
    if figure.quantity in ("tflops", "mfu") and same_kind and figure.gpu and figure.gpu in _find_gpu(row):
        value = _average_mfu(row) if figure.quantity == "mfu" else row.model_flops_per_rank
        scaled = value / 1e12 if value is not None and figure.quantity == "tflops" else value
        return Entry("-" if scaled is None else _format_figure(figure.quantity, scaled), scaled)
    return None


def _average_mfu(row: SchemeRow) -> float | None:
    values = [run.mfu for run in row.runs if run.mfu is not None and run.run.state == "completed"]
    return fmean(values) if values else None


def _format_figure(quantity: str, value: float) -> str:
    if quantity == "tflops":
        return f"{value:.4g} TFLOPS"
    return f"{100 * value:.1f} %" if quantity == "mfu" else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _find_gpu(row: SchemeRow) -> str:
    return next((run.basis.chip for run in row.runs if run.basis.chip), "")
