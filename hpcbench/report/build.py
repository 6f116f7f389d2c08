"""Content of a report: a chapter for each cell with its tables, the answer, failed runs and notes."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Block, Chapter, Document, Sentences, make_chapter
from hpcbench.report import identical
from hpcbench.report.answer import list_findings, list_methods, list_trouble
from hpcbench.report.compare import Cell
from hpcbench.report.notes import list_notes
from hpcbench.report.plots import OF_CELL as FIGURES_OF_CELL
from hpcbench.report.plots import OF_SUBMISSION as FIGURES_OF_SUBMISSION
from hpcbench.report.tables import OF_CELL, OF_SUBMISSION
from hpcbench.report.tables.comparison import tabulate_comparison
from hpcbench.report.tables.microbenchmarks import tabulate_microbenchmarks
from hpcbench.report.tables.overview import tabulate_overview
from hpcbench.report.tables.predicted import tabulate_all_errors
from hpcbench.report.tables.runs import tabulate_logs
from hpcbench.report.thresholds import list_broken
from hpcbench.report.titles import describe_place, write_title
from hpcbench.report.weaknesses import find_common_weaknesses

Section = tuple[Submission, list[Cell]]
"""A submission with its compared cells."""

ALL = "all"
DEFAULT = ("predicted", "strong-scaling", "weak-scaling", "synchrony")
"""Further tables that every report has."""


def resolve_tables(wanted: str) -> tuple[str, ...]:
    """Return the names of the tables that a report has in addition to the comparison.

    `wanted` are names joined by commas, or ``all``; it is empty for the usual tables.
    """
    available = (*OF_CELL, *OF_SUBMISSION)
    names = [part.strip() for part in wanted.split(",") if part.strip()]
    if ALL in names:
        return available
    for name in names:
        if name not in available:
            choices = ", ".join(available)
            raise UserError(f"--tables {make_printable(name, 40)}: not a table: use {ALL}, or some of {choices}")
    return tuple(name for name in available if name in (*DEFAULT, *names))


def build(
    sections: Sequence[Section],
    tables: Collection[str] = DEFAULT,
    *,
    figures: bool = False,
    microbenchmarks: Sequence[Microbenchmark] = (),
) -> Document:
    """Build the document about the runs of some submissions and about the tables of other tools.

    Empty tables are left out. With `figures` the document has all figures that have something to show, to be drawn
    later.
    """
    chapters = [chapter for section in sections for chapter in _build_chapters(*section, tables, figures)]
    if len(sections) > 1 and (errors := tabulate_all_errors(sections)):
        chapters.append(make_chapter(errors.title, "over all submissions", [replace(errors, title="")]))
    chapters += [
        make_chapter(table.title, "", [replace(table, title="")]) for table in tabulate_microbenchmarks(microbenchmarks)
    ]
    names = dict.fromkeys(
        make_printable(f"{submission.plan.study} on {submission.plan.site}") for submission, _ in sections
    )
    return Document(", ".join(names) or "micro-benchmarks", tuple(chapters))


def _build_chapters(
    submission: Submission, cells: list[Cell], tables: Collection[str], figures: bool
) -> Iterator[Chapter]:
    over_cells: list[Block | None] = [make(submission, cells) for name, make in OF_SUBMISSION.items() if name in tables]
    over_cells += [make(submission, cells) for make in FIGURES_OF_SUBMISSION.values() if figures]
    if submission.root is None and all(cell.baseline is None for cell in cells):
        # Logs without a baseline to compare them with.
        bad = Sentences(tuple(line for cell in cells for line in list_trouble(cell)), "bad")
        yield make_chapter(
            _describe_place(submission), "", [tabulate_logs(submission, cells), bad, _build_notes(cells), *over_cells]
        )
        for cell in cells:
            if any(further := _build_further(submission, cell, tables, figures)):
                yield make_chapter(*write_title(cell), further)
        return
    weak, is_sweep = find_common_weaknesses(cells), len(cells) > 1
    methods, notes = [list_methods(cell) for cell in cells], [_build_notes([cell]) for cell in cells]
    # The overview of a sweep shows common properties of its cells once.
    shared, shared_notes = _find_repeated(methods), _find_repeated(sentences.lines for sentences in notes)
    if is_sweep:
        below = [Sentences((*weak[0].sentences, *shared)), Sentences(shared_notes, "warning")]
        heading = f"{_describe_place(submission)}: overview of {len(cells)} cells"
        yield make_chapter(heading, "", [tabulate_overview(cells, weak), *below])
    for cell, letters, method, sentences in zip(cells, weak, methods, notes, strict=True):
        bad_lines = (*list_trouble(cell), *list_broken([cell], submission.plan.thresholds))
        footnotes = [*([] if is_sweep else letters.sentences), *(line for line in method if line not in shared)]
        answer = Sentences((*list_findings(cell, submission.plan.site, letters), *footnotes))
        warnings = replace(sentences, lines=tuple(line for line in sentences.lines if line not in shared_notes))
        further = _build_further(submission, cell, tables, figures)
        yield make_chapter(
            *write_title(cell),
            [tabulate_comparison(cell, letters), answer, Sentences(bad_lines, "bad"), warnings, *further],
        )
    if any(over_cells):
        yield make_chapter(f"{_describe_place(submission)}: all {'cells' if is_sweep else 'runs'}", "", over_cells)


def _build_further(submission: Submission, cell: Cell, tables: Collection[str], figures: bool) -> list[Block | None]:
    """Return the tables and figures of a cell, apart from the comparison."""
    blocks: list[Block | None] = [make(submission, cell) for name, make in OF_CELL.items() if name in tables]
    return blocks + [make(submission, cell) for make in FIGURES_OF_CELL.values() if figures]


def _build_notes(cells: list[Cell]) -> Sentences:
    lines = [sentence for cell in cells for sentence in identical.describe_identical(cell)]
    return Sentences((*lines, *list_notes(run for cell in cells for run in cell.runs)), "warning")


def _find_repeated(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the sentences that stand in several lists, each once."""
    counts = Counter(line for lines in lists for line in dict.fromkeys(lines))
    return tuple(line for line, count in counts.items() if count > 1)


def _describe_place(submission: Submission) -> str:
    if submission.runs:
        return describe_place(submission.runs[0])
    return make_printable(f"{submission.plan.study} on {submission.plan.site}")
