"""Subjects of a report: submissions, logs, and micro-benchmark tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.collect.find import jobs_of, resolve
from hpcbench.collect.microbenchmarks import Microbenchmark
from hpcbench.collect.microbenchmarks import load as load_microbenchmarks
from hpcbench.collect.submission import UNKNOWN_SITE, NoRunError, RunResult, Submission, from_log, load
from hpcbench.contract.submission import RunPlan
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.report.build import Section
from hpcbench.report.bundle import is_archive
from hpcbench.report.bundle import load_bundle as bundled
from hpcbench.report.compare import ComparedRuns, compare_all
from hpcbench.report.measures import measure
from hpcbench.report.pooling import join_submissions

Named = tuple[str, Path]
"""Name of a scheme, and a log of this scheme."""


def parse_name(path: Path) -> Named | None:
    """Split ``NAME=FILE`` into name and file.

    The result is None if the argument is an existing path or has no name before the equals sign.
    """
    name, sign, file = str(path).partition("=")
    if not sign or "/" in name or path.exists():
        return None
    if not name.strip() or not file:
        raise UserError(f"{make_printable(str(path))}: no such file: to name a log's scheme, write NAME=FILE")
    return name.strip(), Path(file)


def join_logs(logs: Sequence[Named]) -> Submission:
    """Return logs as runs of a single cell. The first name is the baseline, and logs with the same name are repeats."""
    counts: Counter[str] = Counter()
    runs = []
    for name, path in logs:
        counts[name] += 1
        k = counts[name]
        run = replace(_load_run(path), id=f"r{k}-{name}", scheme=name, repeat=k, pairing=f"r{k}", cell={}, given=True)
        runs.append(run)
    study, site = (
        _find_common([run.study for run in runs], "logs"),
        _find_common([run.site for run in runs], UNKNOWN_SITE),
    )
    runs = [replace(run, study=study, site=site) for run in runs]
    return Submission(None, RunPlan(study=study, site=site, baseline={"scheme": logs[0][0]}, jobs=[], runs=[]), runs)


def _load_run(path: Path) -> RunResult:
    try:
        return from_log(path)
    except NoRunError:
        if _read_tables(path):
            raise UserError(
                f"{make_printable(str(path))}: tables of micro-benchmarks have no scheme: give the file without NAME="
            ) from None
        raise


def _read_tables(path: Path) -> list[Microbenchmark]:
    """Return the non-empty tables of a file."""
    tables = load_microbenchmarks(path)
    filled = [table for table in tables if table.sizes]
    if tables and not filled:
        first = tables[0]
        raise UserError(
            f"{make_printable(str(path))}:{first.line}: the table of {first.tool} with this heading has no rows: "
            "check that the benchmark was not stopped, and that its rows are in this file"
        )
    return filled


def _find_common(names: Sequence[str], several: str) -> str:
    return names[0] if len(set(names)) == 1 else several


@dataclass(frozen=True)
class Subjects:
    """Content of the paths that a report is made from."""

    sections: list[Section]
    microbenchmarks: list[Microbenchmark] = field(default_factory=list)


def read(paths: list[Path]) -> Subjects:
    """Read submissions, bundles and logs. `hpcbench report` documents the kinds of paths."""
    if not paths:
        raise UserError("nothing to report: give a directory of results or a log file")
    submissions: list[Submission] = []
    roots: set[Path] = set()
    runs: list[tuple[Path, RunResult]] = []
    microbenchmarks: list[Microbenchmark] = []
    logs: list[Named] = []
    for path in dict.fromkeys(paths):
        if (log := parse_name(path)) is not None:
            logs.append(log)
            continue
        if is_archive(path):
            submissions += bundled(path)
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
            if not (tables := _read_tables(path)):
                raise
            microbenchmarks += tables
    submissions.extend(gather(runs))
    if logs:
        submissions.append(join_logs(logs))
    return Subjects(make_sections(join_submissions(submissions)), microbenchmarks)


def make_sections(submissions: Sequence[Submission]) -> list[Section]:
    """Compare the runs of submissions, with a common significance level for all findings of the report."""
    cells = compare_all([_make_study(submission) for submission in submissions])
    return list(zip(submissions, cells, strict=True))


def gather(runs: list[tuple[Path, RunResult]]) -> list[Submission]:
    """Group runs that consist only of a log, by study and site.

    Logs in different directories belong to different submissions and are never paired, even if both are named ``r1``.
    """
    groups: dict[tuple[str, str], list[RunResult]] = {}
    homes = {_find_home(path) for path, _ in runs}
    for path, run in runs:
        if len(homes) > 1:
            run.pairing = f"{_find_home(path)}:{run.pairing}"
        groups.setdefault((run.study, run.site), []).append(run)
    submissions = []
    for (study, site), group in groups.items():
        base = next((run.scheme for run in group if _is_baseline(run)), "baseline")
        plan = RunPlan(study=study, site=site, baseline={"scheme": base}, jobs=[], runs=[])
        submissions.append(Submission(None, plan, group))
    return submissions


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _find_home(path: Path) -> Path:
    """Return the submission directory of a log."""
    return path.absolute().parents[1] if path.name == "log.txt" else path.absolute().parent


def _is_baseline(run: RunResult) -> bool:
    return run.settings.scheme.algorithm == "native" and run.settings.scheme.is_uncompressed


def _make_study(submission: Submission) -> ComparedRuns:
    baseline = str(submission.plan.baseline.get("scheme", "baseline"))
    return ComparedRuns([measure(run) for run in submission.runs], baseline, submission.plan.criteria)
