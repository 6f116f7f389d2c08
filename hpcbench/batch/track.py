"""How a submission stands: its marks, and one question to its scheduler for all jobs whose marks do not say it all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json
from hpcbench.batch.judge import Status, judge_job, judge_run
from hpcbench.batch.ledger import Ledger
from hpcbench.batch.marks import Mark, read_mark
from hpcbench.batch.opened import open_scheduler
from hpcbench.batch.seen import Seen, advance, load, save
from hpcbench.batch.states import State
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import shown_path

_LAG = 60.0
"""Seconds after which accounting has heard of a job's end, if there is any."""


@dataclass(frozen=True)
class Tracked:
    """A submission with the state of all it holds."""

    root: Path
    submission: dict[str, Any]
    jobs: dict[str, Status]
    runs: dict[str, Status]
    ids: dict[str, str]
    """By which the scheduler knows the jobs that it has."""
    silent: str | None = None
    """Why the scheduler could not be asked; None where it answered, or there was nothing to ask."""

    @property
    def failed(self) -> bool:
        """Whether a run ended otherwise than it should, or nobody knows how."""
        return any(not (status.state.alive or status.state is State.COMPLETED) for status in self.runs.values())

    @property
    def over(self) -> bool:
        """Whether nothing waits or runs any more."""
        return not any(status.state.alive for status in (*self.jobs.values(), *self.runs.values()))


def track(root: Path, *, ask: bool = True) -> Tracked:
    """State of every job and run of the submission at `root`.

    Parameters
    ----------
    ask
        Whether to ask the scheduler; else what it said last counts.

    Raises
    ------
    UserError
        A file of it is missing or damaged.
    """
    submission = read_submission(root)
    path = root / "submission.json"
    try:
        names = [job["id"] for job in submission["jobs"]]
        ledger = Ledger(root)
        marks = {job: read_mark(root / "jobs" / job) for job in names}
        ids = {job: id for job in names if (id := ledger.element(job))}
        seen, silent = _ask(root, ids, marks, ledger) if ask else (load(root), None)
        jobs = {job: _job(job, marks[job], ledger, seen.get(job), silent, submission) for job in names}
        runs = {run["id"]: _run(root, run, jobs[run["job"]]) for run in submission["runs"]}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{shown_path(path)}: damaged, lacks {error}: submit the study again") from None
    return Tracked(root, submission, jobs, runs, ids, silent)


def read_submission(root: Path) -> dict[str, Any]:
    """What was written when the study was submitted.

    Raises
    ------
    UserError
        It cannot be read.
    """
    submission = read_json(root / "submission.json")
    if submission is None:
        name = shown_path(root / "submission.json")
        raise UserError(f"{name}: damaged, lacks a readable submission.json: submit the study again")
    return submission


def _ask(
    root: Path, ids: Mapping[str, str], marks: Mapping[str, Mark | None], ledger: Ledger
) -> tuple[dict[str, Seen], str | None]:
    """What is known of the jobs after a question to the scheduler, if one is left to be asked."""
    seen, clock = load(root), time.time()
    open_ids = {job: id for job, id in ids.items() if not _settled(job, marks[job], seen.get(job), ledger)}
    asked = {
        job: id
        for job, id in ids.items()
        if job in open_ids or not _accounted(seen.get(job), _parcel(job, ledger), clock)
    }
    if not asked:
        return seen, None
    try:
        words = dict(open_scheduler(root).poll(list(asked.values())))
    except UserError as error:
        return seen, str(error) if open_ids else None
    found = {job: advance(seen.get(job), _parcel(job, ledger), words.get(id), clock) for job, id in asked.items()}
    new = {**seen, **{job: one for job, one in found.items() if one is not None}}
    if new != seen:
        save(root, new)
    return new, None


def _parcel(job: str, ledger: Ledger) -> str:
    handed = ledger.of(job)
    return handed.name if handed else ""


def _settled(job: str, mark: Mark | None, seen: Seen | None, ledger: Ledger) -> bool:
    """Whether the scheduler has nothing to add: the script told its end, and that is good or explained for good."""
    handed = ledger.of(job)
    if mark is None or handed is None or mark.attempt <= handed.begun[job] or mark.state != "ended":
        return False
    return mark.exit == 0 or (seen is not None and seen.parcel == handed.name and seen.final)


def _accounted(seen: Seen | None, parcel: str, clock: float) -> bool:
    """Whether there is no hope for more about a job that is over: how long it waited and ran, what it used."""
    if seen is None or seen.parcel != parcel:
        return False
    if seen.word.state.alive:
        return seen.absent is not None
    return bool(seen.word.accounting) or clock - seen.since > _LAG


def _job(
    job: str,
    mark: Mark | None,
    ledger: Ledger,
    seen: Seen | None,
    silent: str | None,
    submission: Mapping[str, Any],
) -> Status:
    handed = ledger.of(job)
    if handed is None and mark is None:
        return Status(
            State.PENDING,
            "a dry run: not submitted" if submission.get("dry_run") else "not handed in: `hpcbench submit` again",
        )
    if seen is not None and seen.parcel != _parcel(job, ledger):
        seen = None
    requeue = bool(submission.get("requeue"))
    return judge_job(job, mark, handed, seen, requeue=requeue, silent=silent, clock=time.time())


def _run(root: Path, run: Mapping[str, Any], job: Status) -> Status:
    directory = root / run["path"]
    return judge_run(directory, read_mark(directory), job)
