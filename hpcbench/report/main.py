"""Implementation of the command ``hpcbench report``."""

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
from hpcbench.present.results import check_output, resolve_format
from hpcbench.report.against import compare_submissions
from hpcbench.report.build import build, resolve_tables
from hpcbench.report.formats import ALL_FIGURES, ALL_TABLES, FORMATS, ONLY_RUNS, ReportRequest
from hpcbench.report.pooling import split_pooled
from hpcbench.report.sections import read
from hpcbench.report.thresholds import list_broken

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
    """Print or write a report. The parameters correspond to the command-line options.

    The result is 1 if a run failed, diverged, was cancelled or has an unknown state, if a threshold of the study is not
    met, or if a micro-benchmark had wrong results. With `against`, the result is 1 if a scheme became slower, reaches a
    worse loss, fails or is missing. Otherwise it is 0.
    """
    form = resolve_format(format, output, FORMATS)
    for option, file in (("--output", output), ("--bundle", bundle)):
        check_output(option, file)
    names = resolve_tables(tables or ("all" if form in ALL_TABLES else ""))
    if tables and (against is not None or form in ALL_FIGURES):
        fixed = f"--format {form}" if against is None else "--against"
        raise UserError(f"--tables: cannot be combined with {fixed}: leave --tables out")
    targets = _make_targets(exports)
    if plots is not None:
        need_matplotlib("--plots")
    if bundle is not None or anonymous or replace:
        from hpcbench.report.bundle.pack import check_options, pack

        replaced = check_options(bundle, anonymous, replace)
    subjects = read(paths)
    sections = subjects.sections
    if subjects.microbenchmarks and form in ONLY_RUNS:
        path = make_printable(str(subjects.microbenchmarks[0].path))
        raise UserError(f"--format {form}: {path} contains no runs: use table, md, latex, html or json")
    request = ReportRequest(sections, names, output, subjects.microbenchmarks)
    bad = any(run.state in BAD for submission, _ in sections for run in submission.runs)
    bad |= any(list_broken(cells, submission.plan.thresholds) for submission, cells in sections)
    bad |= any(table.is_bad for table in subjects.microbenchmarks)
    if against is not None:
        if form in ONLY_RUNS:
            raise UserError(f"--format {form}: cannot be combined with --against: use table, md, latex, html or json")
        request, bad = compare_submissions(request, read([against]).sections)
    request.show(form, output)
    if plots is not None:
        from hpcbench.present.figures import write

        write(build(sections, (), figures=True), plots)
    read_submissions = split_pooled([submission for submission, _ in sections])
    if bundle is not None:
        pack(read_submissions, bundle, anonymous=anonymous, replaced=replaced)
    if trace is not None:
        _write_traces(read_submissions, trace)
    for target in targets:
        target.write(read_submissions)
    return int(bad)


def _write_traces(submissions: Sequence[Submission], directory: Path) -> None:
    """Write a Perfetto trace ``RUN.json`` for each traced run, with all ranks on a common clock.

    A description of the traces is printed on standard error.
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
        print(f"hpcbench: {path}: {_describe_trace(joined['otherData'])}", file=sys.stderr)
    if not written:
        raise UserError(
            "--trace: no run has a trace: set train.trace in the study, such as `trace: {steps: [20, 25]}`, and "
            "run the study again"
        )


def _describe_trace(about: dict[str, float]) -> str:
    text = f"ranks on a common clock: {about['ranks']}, with an error of at most {about['clock_error_us']:.0f} us"
    return f"{text}; {about['left_out']} spans were left out: trace fewer steps" if about["left_out"] else text


def _make_targets(exports: Sequence[Path]) -> "list[ExportTarget]":
    if not exports:
        return []
    from hpcbench.report.export.files import ExportTarget  # slow import (SQLite, for example)

    return [ExportTarget.of(path) for path in exports]
