"""What a report is of: submissions, logs, and tables of micro-benchmarks."""

from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.collect.find import jobs_of, resolve
from hpcbench.collect.lines import text
from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.collect.microbenchmarks import load as load_microbenchmarks
from hpcbench.collect.submission import NoRunError, RunResult, Submission, from_log, load
from hpcbench.contract.submission import Plan
from hpcbench.errors import UserError
from hpcbench.report.build import Section
from hpcbench.report.compare import Cell, compare
from hpcbench.report.measures import is_uncompressed, measure
from hpcbench.report.named_logs import Named, named, together


@dataclass(frozen=True)
class Found:
    """What the paths of a report hold."""

    sections: list[Section]
    microbenchmarks: list[Microbenchmark] = field(default_factory=list)


def read(paths: list[Path]) -> Found:
    """Read submissions and logs, and compare their runs.

    Parameters
    ----------
    paths
        Directories that `hpcbench submit` made, directories of such (the newest is taken), or files; ``NAME=FILE`` for
        logs that are to be compared.

    Raises
    ------
    UserError
        There are no paths, or one is not what it should be.
    """
    if not paths:
        raise UserError("nothing to report: give a directory of results or a log file")
    submissions: list[Submission] = []
    roots: set[Path] = set()
    runs: list[tuple[Path, RunResult]] = []
    microbenchmarks: list[Microbenchmark] = []
    logs: list[Named] = []
    for path in dict.fromkeys(paths):
        if (log := named(path)) is not None:
            logs.append(log)
            continue
        if _is_directory(path):
            root = resolve(path)
            if root.resolve() not in roots:
                submissions.append(load(root, jobs_of(root)))
            roots.add(root.resolve())
            continue
        try:
            runs.append((path, from_log(path)))
        except NoRunError:
            if not (tables := load_microbenchmarks(path)):
                raise
            microbenchmarks += tables
    submissions.extend(gather(runs))
    if logs:
        submissions.append(together(logs))
    return Found([(submission, _cells(submission)) for submission in submissions], microbenchmarks)


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
