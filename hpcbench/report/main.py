"""The command ``hpcbench report``: from directories and logs to an answer."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.collect.submission import Submission
from hpcbench.collect.traces import traces_of
from hpcbench.contract.state import BAD
from hpcbench.contract.text import make_printable
from hpcbench.contract.trace import merge_traces
from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.present.results import resolve_format
from hpcbench.report.against import compared
from hpcbench.report.build import build, table_names
from hpcbench.report.formats import ALL_FIGURES, ALL_TABLES, FORMATS, ONLY_RUNS, ReportRequest
from hpcbench.report.pooling import parts
from hpcbench.report.sections import read
from hpcbench.report.thresholds import broken

if TYPE_CHECKING:
    from hpcbench.report.export.files import ExportTarget


def report(
    paths: list[Path],
    format: str | None = None,
    output: Path | None = None,
    tables: str = "",
    plots: Path | None = None,
    exports: Sequence[Path] = (),
    against: Path | None = None,
    trace: Path | None = None,
    bundle: Path | None = None,
    anonymous: bool = False,
    replace: Sequence[str] = (),
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
        An earlier submission: say what changed since, and nothing else.
    trace
        Directory to write the traces of the runs to, the ranks of a run joined.
    bundle
        File to pack the submissions into.
    anonymous
        Whether to replace the names of hosts and users in the bundle.
    replace
        Further words to replace in the bundle: ``OLD=NEW``, or ``OLD``.

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
    form = resolve_format(format, output, FORMATS)
    names = table_names(tables or ("all" if form in ALL_TABLES else ""))
    if tables and (against is not None or form in ALL_FIGURES):
        fixed = f"--format {form}" if against is None else "--against"
        raise UserError(f"--tables: cannot be chosen with {fixed}: leave it out")
    targets = _targets(exports)
    if plots is not None:
        need_matplotlib("--plots")
    if bundle is not None or anonymous or replace:
        from hpcbench.report.bundle.pack import check_options, pack

        replaced = check_options(bundle, anonymous, replace)
    found = read(paths)
    sections = found.sections
    if found.microbenchmarks and form in ONLY_RUNS:
        path = make_printable(str(found.microbenchmarks[0].path))
        raise UserError(f"--format {form}: {path} has no runs: use table, md, latex, html or json")
    request = ReportRequest(sections, names, output, found.microbenchmarks)
    bad = any(run.state in BAD for submission, _ in sections for run in submission.runs)
    bad |= any(broken(cells, submission.plan.thresholds) for submission, cells in sections)
    bad |= any(table.is_bad for table in found.microbenchmarks)
    if against is not None:
        if form in ONLY_RUNS:
            raise UserError(f"--format {form}: not with --against: use table, md, latex, html or json")
        request, bad = compared(request, read([against]).sections)
    request.show(form, output)
    if plots is not None:
        from hpcbench.present.figures import write

        write(build(sections, (), figures=True), plots)
    read_submissions = parts([submission for submission, _ in sections])
    if bundle is not None:
        pack(read_submissions, bundle, anonymous=anonymous, replaced=replaced)
    if trace is not None:
        _write_traces(read_submissions, trace)
    for target in targets:
        target.write(read_submissions)
    return int(bad)


def _write_traces(submissions: Sequence[Submission], directory: Path) -> None:
    """Write ``RUN.json`` for each run that has a trace: its ranks on one clock, in a file that Perfetto opens.

    Standard error says what it holds.

    Raises
    ------
    UserError
        No run has a trace, or a file cannot be read or written.
    """
    written: list[Path] = []
    for run in (run for submission in submissions for run in submission.runs):
        traces = traces_of(run)
        if not traces:
            continue
        joined = merge_traces(traces)
        path = directory / f"{run.id}.json"
        if path in written:
            path = directory / f"{run.id}-{len(written)}.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(joined, separators=(",", ":")), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--trace {make_printable(str(path))}: cannot be written: {error.strerror}") from None
        written.append(path)
        print(f"hpcbench: {path}: {_said(joined['otherData'])}", file=sys.stderr)
    if not written:
        raise UserError(
            "--trace: no run has a trace: set train.trace in the study, such as `trace: {steps: [20, 25]}`, and run it"
        )


def _said(about: dict[str, float]) -> str:
    ranks, lost = about["ranks"], about["left_out"]
    words = f"{ranks} rank{'s' * (ranks > 1)} on one clock, to {about['clock_error_us']:.0f} us"
    return f"{words}; {lost} spans were left out: trace fewer steps" if lost else words


def _targets(exports: Sequence[Path]) -> "list[ExportTarget]":
    if not exports:
        return []
    from hpcbench.report.export.files import ExportTarget  # with what only it needs, such as SQLite

    return [ExportTarget.of(path) for path in exports]
