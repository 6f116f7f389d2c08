"""``hpcbench report``: from directories and logs to an answer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.collect.find import jobs_of, resolve
from hpcbench.collect.lines import printable, text
from hpcbench.collect.state import BAD
from hpcbench.collect.submission import Plan, RunResult, Submission, from_log, load
from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.report.build import Section, build, table_names
from hpcbench.report.compare import Cell, compare
from hpcbench.report.formats import FORMATS, TERMINAL, Request, format_name
from hpcbench.report.measures import is_uncompressed, measure
from hpcbench.report.regression.request import compared
from hpcbench.report.thresholds import broken

if TYPE_CHECKING:
    from hpcbench.report.export.target import Target


def report(
    paths: list[Path],
    format: str | None = None,
    output: Path | None = None,
    tables: str = "",
    plots: Path | None = None,
    exports: Sequence[Path] = (),
    against: Path | None = None,
) -> int:
    """Print what the runs say.

    Parameters
    ----------
    paths
        Directories that `hpcbench submit` made, directories of such (the newest is taken), or log files.
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

    Returns
    -------
    int
        0, or 1 when a run diverged, failed, was cancelled, it is not known what became of it, or a threshold of the
        study is not kept. With `against`: 1 when something got slower or worse, broke or is missing.

    Raises
    ------
    UserError
        A path, the format or a table is wrong, or a file is not what it should be.
    """
    form = format_name(format, output)
    names = table_names(tables or FORMATS[form].tables)
    targets = _targets(exports)
    if plots is not None:
        need_matplotlib("--plots")
    sections = sections_of(paths)
    request = Request(sections, names, output)
    bad = any(run.state in BAD for submission, _ in sections for run in submission.runs)
    bad |= any(broken(cells, submission.plan.thresholds) for submission, cells in sections)
    if against is not None:
        if FORMATS[form].runs:
            raise UserError(f"--format {form}: not with --against: use table, md, latex, html or json")
        request, bad = compared(request, sections_of([against]))
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


def sections_of(paths: list[Path]) -> list[Section]:
    """Read submissions and logs, and compare their runs.

    Raises
    ------
    UserError
        There are no paths, or one is not what it should be.
    """
    if not paths:
        raise UserError("nothing to report: give a directory of results or a log file")
    submissions: list[Submission] = []
    logs: list[Path] = []
    for path in paths:
        if _is_directory(path):
            root = resolve(path)
            submissions.append(load(root, jobs_of(root)))
        else:
            logs.append(path)
    submissions.extend(gather([(path, from_log(path)) for path in dict.fromkeys(logs)]))
    return [(submission, _cells(submission)) for submission in submissions]


def _targets(exports: Sequence[Path]) -> "list[Target]":
    if not exports:
        return []
    from hpcbench.report.export.target import Target  # with what only it needs, such as SQLite

    return [Target.of(path) for path in exports]


def gather(runs: list[tuple[Path, RunResult]]) -> list[Submission]:
    """Runs of which there are but logs, by study and site.

    Logs of different directories come of different submissions, so that they make no pair although both say ``r1``.
    """
    groups: dict[tuple[str, str], list[RunResult]] = {}
    homes = {_home(path) for path, _ in runs}
    for path, run in runs:
        if len(homes) > 1:
            run.pairing = f"{_home(path)}:{run.pairing}"
        groups.setdefault((run.study, run.site), []).append(run)
    found = []
    for (study, site), group in groups.items():
        base = next((run.scheme for run in group if _is_baseline(run)), "baseline")
        plan = Plan(study=study, site=site, baseline={"scheme": base}, jobs=[], runs=[])
        found.append(Submission(None, plan, group))
    return found


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _home(path: Path) -> Path:
    """Directory of the submission that a log lies in."""
    return path.absolute().parents[1] if path.name == "log.txt" else path.absolute().parent


def _is_baseline(run: RunResult) -> bool:
    return text(run.settings, "scheme", "algorithm") == "native" and is_uncompressed(run)


def _cells(submission: Submission) -> list[Cell]:
    baseline = str(submission.plan.baseline.get("scheme", "baseline"))
    return compare([measure(run) for run in submission.runs], baseline, submission.plan.criteria)


def _save(words: str, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(words)
        return
    try:
        path.write_text(words, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {printable(str(path))}: cannot be written: {error.strerror}") from None
