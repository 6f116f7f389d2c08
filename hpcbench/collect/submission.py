"""Reader of a submission: its plan, and the state and log of each run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.collect import run_log
from hpcbench.collect.dialects import read as dialects
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.file_kinds import describe_other_file
from hpcbench.collect.program_log import form_of, read_program
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.events import Configuration, End, Start
from hpcbench.contract.mark import Mark, read_mark
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.program import LogForm, LogLines
from hpcbench.contract.run_state import resolve_log_state, resolve_run
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import JobSummary, ResolvedState, State
from hpcbench.contract.submission import PlannedRun, RunPlan, read_submission
from hpcbench.contract.text import make_printable
from hpcbench.contract.times import measure_seconds
from hpcbench.errors import UserError
from hpcbench.files import read_json

UNKNOWN_SITE = "unknown site"
"""Site name for logs that do not contain a site name."""


@dataclass
class RunResult:
    """A run with its settings, state and log."""

    id: str
    study: str
    site: str
    scheme: str
    repeat: int | None
    pairing: str
    cell: dict[str, Any]
    verdict: ResolvedState
    log: RunLog | None
    settings: LoggedSettings = field(default_factory=LoggedSettings)
    """Content of the run's ``run.json``, read from the configuration event in the log or from the file."""
    job: str | None = None
    exit: int | None = None
    start: str | None = None
    end: str | None = None
    host: str | None = None
    allocation: str | None = None
    """Job, scheduler ID and attempt of the run.

    Runs with the same value ran on the same nodes. The value is None if no status file contains it.
    """
    given: bool = False
    """Whether the user specified the scheme and the pairing because the run has no plan."""
    submission: str = ""
    """Label of the submission. The label is empty unless a report contains several submissions of one study."""

    @property
    def state(self) -> State:
        """State of the run."""
        return self.verdict.state

    @property
    def seconds(self) -> float | None:
        """Duration of the run in seconds, from its status files or, if they are missing, from its log."""
        marked = measure_seconds(self.start, self.end)
        return self.log.read_event(End).seconds if marked is None and self.log else marked


@dataclass
class Submission:
    """A planned submission with its runs, or a set of logs."""

    root: Path | None
    plan: RunPlan
    runs: list[RunResult]
    parts: tuple["Submission", ...] = ()
    """The submissions that were combined into this one. The tuple is empty for a single submission."""


def load(root: Path, jobs: Mapping[str, JobSummary]) -> Submission:
    """Read a submission and all its logs.

    Parameters
    ----------
    root
        Directory of the submission.
    jobs
        Jobs keyed by ID.
    """
    plan = read_submission(root)
    runs = []
    for run in plan.runs:
        directory = root / run.path
        # The status file is read first: if it reports the end, the log already contains the end.
        mark = read_mark(directory)
        path = directory / "log.txt"
        log = _read(path, plan.program_log) if path.is_file() else None
        runs.append(result(plan, run, root, jobs.get(run.job, JobSummary(run.job, State.UNKNOWN)), mark, log))
    return Submission(root, plan, runs)


def _read(path: Path, form: LogForm | None) -> RunLog:
    if form is None:
        return run_log.read(path)
    try:
        return read_program(path, form)
    except OSError as error:
        raise UserError(f"{make_printable(str(path))}: cannot be read: {error.strerror}") from None


def result(
    plan: RunPlan, run: PlannedRun, root: Path, job: JobSummary, mark: Mark | None, log: RunLog | None
) -> RunResult:
    """Return the result of a planned run whose status file and log have been read."""
    directory, status = root / run.path, mark or Mark("")
    return RunResult(
        id=run.id,
        study=plan.study,
        site=plan.site,
        scheme=run.scheme,
        repeat=run.repeat,
        pairing=run.pairing,
        cell=run.cell,
        verdict=resolve_run(directory, root / "jobs", mark, job, log.ending if log is not None else None),
        log=log,
        settings=_settings(log, directory / "run.json"),
        job=run.job,
        exit=status.exit,
        start=status.start,
        end=status.end,
        host=status.host,
        allocation=f"{status.job}:{status.id}:{status.attempt}" if status.job and status.id else None,
    )


class NoRunError(UserError):
    """The file is not a log of a run."""


def from_log(path: Path) -> RunResult:
    """Return a run that consists only of a log file, from hpcbench or another framework.

    Each run of another framework is a cell of its own, so that it is not compared with other runs.

    Raises
    ------
    NoRunError
        The file contains no step line of a known dialect.
    UserError
        The file cannot be read.
    """
    log = dialects.read(path)
    try:
        form = form_of(_settings(log, None))
    except ValidationError as error:
        name = f"{make_printable(str(path))}: program.log in the configuration event"
        raise make_user_error(error, LogLines, lambda _: name) from None
    if form is not None:
        log = _read(path, form)
    if not log.lines:
        raise NoRunError(
            f"{make_printable(str(path))}: log is empty: check that the run has started and that its output goes to"
            " this file"
        )
    if not log.steps and log.event(Start) is None:
        if description := describe_other_file(path):
            raise NoRunError(f"{make_printable(str(path))}: {description}")
        names = ", ".join(dialect.name for dialect in DIALECTS)
        raise NoRunError(
            f"{make_printable(str(path))}: is neither a log of an hpcbench run (no start event and no step line "
            f"in {log.lines} lines), nor a log of {names}, nor a table of the OSU micro-benchmarks or nccl-tests: "
            "to read the log of another program, run the program from a study whose program.log has a regular "
            "expression of its lines (docs/how-to/torch.md)"
        )
    if log.dialect != "hpcbench" and form is None:
        return _foreign(path, log)
    start = log.read_event(Start)
    return RunResult(
        id=start.run or path.stem,
        study=start.study or path.stem,
        site=start.site or UNKNOWN_SITE,
        scheme=start.scheme or "unknown",
        repeat=start.repeat,
        pairing=start.pairing or path.stem,
        cell=start.cell or {},
        verdict=resolve_log_state(log.ending),
        log=log,
        settings=_settings(log, None),
    )


def _foreign(path: Path, log: RunLog) -> RunResult:
    return RunResult(
        id=path.stem,
        study=path.absolute().parent.name or path.stem,
        site=UNKNOWN_SITE,
        scheme="unknown",
        repeat=None,
        pairing=path.stem,
        cell={"log": path.name},
        verdict=resolve_log_state(log.ending),
        log=log,
    )


def _settings(log: RunLog | None, path: Path | None) -> LoggedSettings:
    run_settings = log.read_event(Configuration).run if log else None
    return LoggedSettings.read((read_json(path) if run_settings is None and path is not None else run_settings) or {})
