"""``hpcbench report``: from directories and logs to an answer."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from hpcbench.collect.find import jobs_of, resolve
from hpcbench.collect.lines import printable, text
from hpcbench.collect.state import BAD
from hpcbench.collect.submission import Plan, RunResult, Submission, from_log, load
from hpcbench.console import UNBOUND, columns
from hpcbench.errors import UserError
from hpcbench.report import formats, table
from hpcbench.report.compare import Cell, compare
from hpcbench.report.formats import Section
from hpcbench.report.measures import is_uncompressed, measure

if TYPE_CHECKING:
    from hpcbench.report.export.target import Target

FORMATS = ("table", "md", "csv", "json")


def report(paths: list[Path], format: str = "table", output: Path | None = None, exports: Sequence[Path] = ()) -> int:
    """Print what the runs say.

    Parameters
    ----------
    paths
        Directories that `hpcbench submit` made, directories of such (the newest is taken), or log files.
    format
        ``table``, ``md``, ``csv`` or ``json``.
    output
        File to write to instead of standard output.
    exports
        Files for the measured rows, see `hpcbench.report.export`.

    Returns
    -------
    int
        0, or 1 when a run diverged, failed, was cancelled, or it is not known what became of it.

    Raises
    ------
    UserError
        A path or the format is wrong, or a file is not what it should be.
    """
    if format not in FORMATS:
        raise UserError(f"--format {printable(format, 40)}: not known: use one of {', '.join(FORMATS)}")
    if not paths:
        raise UserError("nothing to report: give a directory of results or a log file")
    targets = _targets(exports)
    submissions: list[Submission] = []
    logs: list[Path] = []
    for path in paths:
        if _is_directory(path):
            root = resolve(path)
            submissions.append(load(root, jobs_of(root)))
        else:
            logs.append(path)
    submissions.extend(gather([(path, from_log(path)) for path in dict.fromkeys(logs)]))
    sections = [(submission, _cells(submission)) for submission in submissions]
    _write(sections, format, output)
    for target in targets:
        target.write(submissions)
    return int(any(run.state in BAD for submission in submissions for run in submission.runs))


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


def _write(sections: list[Section], format: str, output: Path | None) -> None:
    if format != "table":
        write = {"md": formats.markdown, "csv": formats.as_csv, "json": formats.as_json}[format]
        words = write(sections)
        if output is None:
            sys.stdout.write(words)
            return
        _save(output, words)
        return
    if output is None:
        _render(sections, Console(width=columns(), highlight=False))
        return
    page = io.StringIO()
    _render(sections, Console(file=page, width=UNBOUND, highlight=False, no_color=True))
    _save(output, "".join(line.rstrip() + "\n" for line in page.getvalue().splitlines()))


def _save(path: Path, words: str) -> None:
    try:
        path.write_text(words, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {printable(str(path))}: cannot be written: {error.strerror}") from None


def _render(sections: list[Section], console: Console) -> None:
    for i, (submission, cells) in enumerate(sections):
        if i:
            console.print()
        if submission.root is None and all(cell.baseline is None for cell in cells):
            table.render_runs([run for cell in cells for run in cell.runs], console)
        else:
            table.render(cells, console)
