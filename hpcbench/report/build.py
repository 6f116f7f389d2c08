"""Builds the content of a report: a chapter for each cell, with its tables, the answer, the trouble and the notes."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Block, Chapter, Document, Sentences, make_chapter
from hpcbench.report import identical
from hpcbench.report.answer import findings, method, trouble
from hpcbench.report.compare import Cell
from hpcbench.report.notes import all_notes
from hpcbench.report.plots import OF_CELL as FIGURES_OF_CELL
from hpcbench.report.plots import OF_SUBMISSION as FIGURES_OF_SUBMISSION
from hpcbench.report.tables import OF_CELL, OF_SUBMISSION
from hpcbench.report.tables.comparison import tabulate_comparison
from hpcbench.report.tables.microbenchmarks import tabulate_microbenchmarks as beside
from hpcbench.report.tables.overview import tabulate_overview
from hpcbench.report.tables.predicted import over_all
from hpcbench.report.tables.runs import tabulate_logs
from hpcbench.report.thresholds import broken
from hpcbench.report.titles import place_words, title
from hpcbench.report.weaknesses import weakened_together

Section = tuple[Submission, list[Cell]]
"""A submission with its compared cells."""

ALL = "all"
DEFAULT = ("predicted", "strong-scaling", "weak-scaling", "synchrony")
"""The tables that a report has unasked, beside the comparison."""


def table_names(wanted: str) -> tuple[str, ...]:
    """Names of the tables that a report has beside the comparison.

    Parameters
    ----------
    wanted
        Names joined by commas, or ``all``; empty for the usual ones.

    Raises
    ------
    UserError
        There is no table with this name.
    """
    known = (*OF_CELL, *OF_SUBMISSION)
    asked = [part.strip() for part in wanted.split(",") if part.strip()]
    if ALL in asked:
        return known
    for one in asked:
        if one not in known:
            raise UserError(f"--tables {make_printable(one, 40)}: not known: use {ALL}, or some of {', '.join(known)}")
    return tuple(one for one in known if one in (*DEFAULT, *asked))


def build(
    sections: Sequence[Section],
    tables: Collection[str] = DEFAULT,
    *,
    figures: bool = False,
    microbenchmarks: Sequence[Microbenchmark] = (),
) -> Document:
    """Build the document about the runs of some submissions.

    Parameters
    ----------
    sections
        Submissions, each with its cells.
    tables
        Names of the further tables, in the form of `table_names`. Empty tables are left out.
    figures
        Whether to add all figures that have something to show. They are drawn later.
    microbenchmarks
        Tables of other tools.
    """
    chapters = [chapter for section in sections for chapter in _chapters(*section, tables, figures)]
    if len(sections) > 1 and (errors := over_all(sections)):
        chapters.append(make_chapter(errors.title, "over all submissions", [replace(errors, title="")]))
    chapters += [make_chapter(table.title, "", [replace(table, title="")]) for table in beside(microbenchmarks)]
    names = dict.fromkeys(
        make_printable(f"{submission.plan.study} on {submission.plan.site}") for submission, _ in sections
    )
    return Document(", ".join(names) or "micro-benchmarks", tuple(chapters))


def _chapters(submission: Submission, cells: list[Cell], tables: Collection[str], figures: bool) -> Iterator[Chapter]:
    whole: list[Block | None] = [make(submission, cells) for name, make in OF_SUBMISSION.items() if name in tables]
    whole += [make(submission, cells) for make in FIGURES_OF_SUBMISSION.values() if figures]
    if submission.root is None and all(cell.baseline is None for cell in cells):
        # Logs with nothing to compare them with.
        lost = Sentences(tuple(line for cell in cells for line in trouble(cell)), "bad")
        yield make_chapter(_place(submission), "", [tabulate_logs(submission, cells), lost, _notes(cells), *whole])
        for cell in cells:
            if any(further := _further(submission, cell, tables, figures)):
                yield make_chapter(*title(cell), further)
        return
    weak, sweep = weakened_together(cells), len(cells) > 1
    methods, notes = [method(cell) for cell in cells], [_notes([cell]) for cell in cells]
    # A sweep says once, below its overview, what several cells share.
    shared, shared_notes = _repeated(methods), _repeated(one.lines for one in notes)
    if sweep:
        below = [Sentences((*weak[0].sentences, *shared)), Sentences(shared_notes, "warning")]
        heading = f"{_place(submission)}: overview of {len(cells)} cells"
        yield make_chapter(heading, "", [tabulate_overview(cells, weak), *below])
    for cell, letters, own_method, own_notes in zip(cells, weak, methods, notes, strict=True):
        wrong = (*trouble(cell), *broken([cell], submission.plan.thresholds))
        footnotes = [*([] if sweep else letters.sentences), *(line for line in own_method if line not in shared)]
        answer = Sentences((*findings(cell, submission.plan.site, letters), *footnotes))
        warnings = replace(own_notes, lines=tuple(line for line in own_notes.lines if line not in shared_notes))
        further = _further(submission, cell, tables, figures)
        yield make_chapter(
            *title(cell), [tabulate_comparison(cell, letters), answer, Sentences(wrong, "bad"), warnings, *further]
        )
    if any(whole):
        yield make_chapter(f"{_place(submission)}: all {'cells' if len(cells) > 1 else 'runs'}", "", whole)


def _further(submission: Submission, cell: Cell, tables: Collection[str], figures: bool) -> list[Block | None]:
    """Return the tables and figures of a cell, apart from the comparison."""
    found: list[Block | None] = [make(submission, cell) for name, make in OF_CELL.items() if name in tables]
    return found + [make(submission, cell) for make in FIGURES_OF_CELL.values() if figures]


def _notes(cells: list[Cell]) -> Sentences:
    alike = [sentence for cell in cells for sentence in identical.sentences(cell)]
    return Sentences((*alike, *all_notes(run for cell in cells for run in cell.runs)), "warning")


def _repeated(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the sentences that stand in several lists, each once."""
    counts = Counter(line for lines in lists for line in dict.fromkeys(lines))
    return tuple(line for line, count in counts.items() if count > 1)


def _place(submission: Submission) -> str:
    if submission.runs:
        return place_words(submission.runs[0])
    return make_printable(f"{submission.plan.study} on {submission.plan.site}")
