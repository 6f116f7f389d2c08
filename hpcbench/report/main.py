"""The command ``hpcbench report``: from directories and logs to an answer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.contract.state import BAD
from hpcbench.contract.text import printable
from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.report.against import compared
from hpcbench.report.build import build, table_names
from hpcbench.report.formats import FORMATS, TERMINAL, Request, format_name
from hpcbench.report.sections import read
from hpcbench.report.thresholds import broken

if TYPE_CHECKING:
    from hpcbench.report.export.files import Target


def report(
    paths: list[Path],
    format: str | None = None,
    output: Path | None = None,
    tables: str = "",
    plots: Path | None = None,
    exports: Sequence[Path] = (),
    against: Path | None = None,
) -> int:
    """Print the report about some runs.

    Parameters
    ----------
    paths
        Directories that `hpcbench submit` made, directories of such (the newest is taken), log files, or ``NAME=FILE``
        for logs to compare: the first name is the baseline.
    format
        One of `FORMATS`; None takes it from the suffix of `output`.
    output
        File to write to instead of standard output.
    tables
        Names of further tables, joined by commas, or ``all``.
    plots
        Directory to write the figures to, as SVG and PNG.
    exports
        Files for the measured rows, see `hpcbench.report.export`.
    against
        An earlier submission. The report then shows only the changes since.

    Returns
    -------
    int
        0, or 1 if a run diverged, failed, was cancelled or has an unknown state, if a threshold of the study is not
        kept, or if a micro-benchmark had wrong results. With `against`: 1 if something got slower or worse, broke or is
        missing.

    Raises
    ------
    UserError
        A path, the format or a table is wrong, or a file is damaged.
    """
    form = format_name(format, output)
    names = table_names(tables or FORMATS[form].tables)
    if tables and (against is not None or not FORMATS[form].chosen):
        fixed = f"--format {form}" if against is None else "--against"
        raise UserError(f"--tables: cannot be chosen with {fixed}: leave it out")
    targets = _targets(exports)
    if plots is not None:
        need_matplotlib("--plots")
    found = read(paths)
    sections = found.sections
    if found.microbenchmarks and FORMATS[form].runs:
        path = printable(str(found.microbenchmarks[0].path))
        raise UserError(f"--format {form}: {path} has no runs: use table, md, latex, html or json")
    request = Request(sections, names, output, found.microbenchmarks)
    bad = any(run.state in BAD for submission, _ in sections for run in submission.runs)
    bad |= any(broken(cells, submission.plan.thresholds) for submission, cells in sections)
    bad |= any(size.wrong for table in found.microbenchmarks for size in table.sizes)
    if against is not None:
        if FORMATS[form].runs:
            raise UserError(f"--format {form}: not with --against: use table, md, latex, html or json")
        request, bad = compared(request, read([against]).sections)
    if form == TERMINAL and output is None:
        from hpcbench.report.formats import rich_text

        rich_text.show(request.document())
    else:
        _save(FORMATS[form].write(request), output)
    if plots is not None:
        from hpcbench.report.plots.save import write

        write(build(sections, (), figures=True), plots)
    for target in targets:
        target.write([submission for submission, _ in sections])
    return int(bad)


def _targets(exports: Sequence[Path]) -> "list[Target]":
    if not exports:
        return []
    from hpcbench.report.export.files import Target  # with what only it needs, such as SQLite

    return [Target.of(path) for path in exports]


def _save(words: str, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(words)
        return
    try:
        path.write_text(words, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {printable(str(path))}: cannot be written: {error.strerror}") from None
