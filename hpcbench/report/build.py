"""Report content. Each cell starts with the answer, a figure, the comparison and a few notes; details follow."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Block, Chapter, Document, Figure, Sentences, Table, Tone, make_chapter
from hpcbench.report import identical
from hpcbench.report import sentences as say
from hpcbench.report.answer import find_answer, list_methods, list_trouble, summarize_cells
from hpcbench.report.compare import Cell
from hpcbench.report.notes import list_notes
from hpcbench.report.plots import OF_CELL as FIGURES_OF_CELL
from hpcbench.report.plots import OF_SUBMISSION as FIGURES_OF_SUBMISSION
from hpcbench.report.plots.sites import plot_sites
from hpcbench.report.tables import GROUPS, METHOD, OF_CELL, OF_SUBMISSION, PROBLEMS, choose_group
from hpcbench.report.tables.comparison import tabulate_comparison
from hpcbench.report.tables.microbenchmarks import tabulate_microbenchmarks
from hpcbench.report.tables.overview import tabulate_overview
from hpcbench.report.tables.predicted import tabulate_all_errors
from hpcbench.report.tables.runs import tabulate_calls, tabulate_logs
from hpcbench.report.tables.sites import tabulate_sites
from hpcbench.report.thresholds import count_states, list_broken
from hpcbench.report.titles import describe_place, write_title
from hpcbench.report.weaknesses import find_common_weaknesses

Section = tuple[Submission, list[Cell]]
"""A submission with its compared cells."""
Subject = TypeVar("Subject")

ALL = "all"
DEFAULT = ("strong-scaling", "weak-scaling", "synchrony")
"""Additional tables of every report. A table is empty unless a study addresses the table's question."""
ON_REQUEST = ("published",)
"""Tables that `ALL` does not include."""
MOST_NOTES = 5
"""Maximum number of notes before the details."""


def resolve_tables(wanted: str) -> tuple[str, ...]:
    """Return the names of a report's additional tables.

    `wanted` is a comma-separated list of names or ``all``. An empty string selects the default tables.
    """
    available = (*OF_CELL, *OF_SUBMISSION, METHOD)
    names = [part.strip() for part in wanted.split(",") if part.strip()]
    if ALL in names:
        names += [name for name in available if name not in ON_REQUEST]
    for name in names:
        if name not in (*available, ALL):
            choices = ", ".join(available)
            raise UserError(
                f"--tables {make_printable(name, 40)}: is not a table: use {ALL}, or one or more of {choices}"
            )
    return tuple(name for name in available if name in (*DEFAULT, *names))


def build(
    sections: Sequence[Section],
    tables: Collection[str] = DEFAULT,
    *,
    figures: bool = False,
    microbenchmarks: Sequence[Microbenchmark] = (),
) -> Document:
    """Build the document about runs of submissions and about tables of other tools.

    Empty tables are omitted. With `figures`, the document includes all figures with data. These figures are drawn
    later.
    """
    chapters = [chapter for section in sections for chapter in _build_chapters(*section, tables, figures)]
    if gains := tabulate_sites(sections):
        figure = plot_sites(sections) if figures else None
        chapters.insert(0, make_chapter("Gain by site", "", [replace(gains, title=""), figure]))
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
    over_cells = _select(tables, OF_SUBMISSION, FIGURES_OF_SUBMISSION, figures, submission, cells)
    if submission.root is None and all(cell.baseline is None for cell in cells):
        # Logs without a baseline.
        bad = [line for cell in cells for line in list_trouble(cell)]
        blocks = [
            tabulate_logs(submission, cells),
            tabulate_calls(cells),
            *_build_notes(bad, _list_warnings(cells), [], tables),
        ]
        yield _make_chapter(_describe_place(submission), "", [*blocks, *over_cells])
        for cell in cells:
            if any(details := _build_details(submission, cell, tables, figures)):
                yield _make_chapter(*write_title(cell), details)
        return
    weak, is_sweep = find_common_weaknesses(cells), len(cells) > 1
    warnings = [_list_warnings([cell]) for cell in cells]
    methods = [[*list_methods(cell), *letters.sentences] for cell, letters in zip(cells, weak, strict=True)]
    answers = [find_answer(cell, submission.plan.site, letters) for cell, letters in zip(cells, weak, strict=True)]
    # In a sweep, the overview already shows the properties that all cells share.
    shared, shared_warnings = _find_repeated(methods), _find_repeated(warnings)
    if is_sweep:
        yield _make_chapter(
            f"{_describe_place(submission)}: overview of {len(cells)} cells",
            "",
            [
                Sentences(summarize_cells(cells, [each.verdict for each in answers])),
                tabulate_overview(cells, weak),
                *_build_notes([], shared_warnings, [], tables),
                *_build_method(shared, tables),
                *over_cells,
            ],
        )
    for cell, letters, method, cell_warnings, cell_answer in zip(cells, weak, methods, warnings, answers, strict=True):
        bad = [*list_trouble(cell), *list_broken([cell], submission.plan.thresholds)]
        yield _make_chapter(
            *write_title(cell),
            [
                Sentences((*cell_answer.sentences, *count_states([cell], submission.plan.thresholds))),
                tabulate_comparison(cell, letters, explain=not is_sweep),
                *_build_notes(
                    bad, [line for line in cell_warnings if line not in shared_warnings], cell_answer.others, tables
                ),
                *_build_method([line for line in method if line not in shared], tables),
                *_build_details(submission, cell, tables, figures),
                *([] if is_sweep else over_cells),
            ],
        )


def _make_chapter(title: str, subtitle: str, blocks: Iterable[Block | None]) -> Chapter:
    """Return a chapter in report order: the essential blocks, then the details by group."""
    order = ("", *GROUPS)
    present = [block for block in blocks if block is not None]
    ordered = sorted(present, key=lambda block: order.index(block.group))
    return make_chapter(title, subtitle, ordered)


def _build_details(submission: Submission, cell: Cell, tables: Collection[str], figures: bool) -> list[Block]:
    """Return a cell's tables and figures except the comparison, and a line about tables without values."""
    blocks = _select(tables, OF_CELL, FIGURES_OF_CELL, figures, submission, cell)
    empty = [name for name in OF_CELL if name in tables and name not in {block.name for block in blocks}]
    lines = _describe_empty(empty, cell)
    return [*blocks, Sentences(lines, group=say.GROUP_METHOD)] if lines else [*blocks]


def _describe_empty(names: Sequence[str], cell: Cell) -> tuple[str, ...]:
    """Return one line that lists the tables without values, with the first known reason of each table."""
    reasons = {name: PROBLEMS[name](cell)[:1] for name in names if name in PROBLEMS}
    listed = [f"{name} ({reasons[name][0]})" if reasons.get(name) else name for name in names]
    return (say.TABLES_WITHOUT_VALUES.format(tables=", ".join(listed)),) if listed else ()


def _select(
    tables: Collection[str],
    make_table: Mapping[str, Callable[[Submission, Subject], Table | None]],
    make_figure: Mapping[str, Callable[[Submission, Subject], Figure | None]],
    figures: bool,
    submission: Submission,
    subject: Subject,
) -> list[Table | Figure]:
    blocks: list[Table | Figure | None] = [
        make(submission, subject) for name, make in make_table.items() if name in tables
    ]
    blocks += [make(submission, subject) for make in make_figure.values() if figures]
    return [replace(block, group=choose_group(block)) for block in blocks if block is not None]


def _build_notes(
    bad: Sequence[str], warnings: Sequence[str], findings: Sequence[str], tables: Collection[str]
) -> list[Sentences]:
    """Return the problems and the most important notes. The other notes are listed in the details."""
    tones: list[tuple[Tone, Sequence[str]]] = [("warning", warnings), ("", findings)]
    notes = [(line, tone) for tone, lines in tones for line in lines]
    most = MOST_NOTES - (METHOD not in tables and len(notes) > MOST_NOTES)
    shown = [Sentences(tuple(bad), "bad")]
    shown += [Sentences(tuple(line for line, of in notes[:most] if of == tone), tone) for tone, _ in tones]
    hidden = [line for line, _ in notes[most:]]
    if METHOD not in tables:
        return [*shown, Sentences((say.MORE_NOTES.format(count=len(hidden)),) if hidden else ())]
    return [*shown, *_build_method(hidden, tables)]


def _build_method(lines: Sequence[str], tables: Collection[str]) -> list[Sentences]:
    return [Sentences(tuple(lines), group=say.GROUP_METHOD)] if METHOD in tables else []


def _list_warnings(cells: list[Cell]) -> list[str]:
    lines = [sentence for cell in cells for sentence in identical.describe_identical(cell)]
    return [*lines, *list_notes(run for cell in cells for run in cell.runs)]


def _find_repeated(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the sentences that occur in several lists, without duplicates."""
    counts = Counter(line for lines in lists for line in dict.fromkeys(lines))
    return tuple(line for line, count in counts.items() if count > 1)


def _describe_place(submission: Submission) -> str:
    if submission.runs:
        return describe_place(submission.runs[0])
    return make_printable(f"{submission.plan.study} on {submission.plan.site}")
