"""How a submission stands: its marks, and one question to its scheduler for all jobs whose marks do not say it all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.judge import Status, judge_job, judge_run
from hpcbench.batch.ledger import Ledger
from hpcbench.batch.marks import Mark, read_mark
from hpcbench.batch.opened import open_scheduler
from hpcbench.batch.seen import Seen, advance, load, save
from hpcbench.batch.states import State, Word
from hpcbench.batch.submission_file import Written, read_submission
from hpcbench.errors import UserError


@dataclass(frozen=True)
class Tracked:
    """A submission with the state of all it holds."""

    root: Path
    submission: Written
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
    names = [job["id"] for job in submission["jobs"]]
    ledger = Ledger(root)
    marks = {job: read_mark(root / "jobs" / job) for job in names}
    ids = {job: id for job in names if (id := ledger.element(job))}
    seen, silent = _ask(root, ids, marks, ledger) if ask else (load(root), None)
    jobs = {
        job: _job(job, marks[job], ledger, seen.get(job), silent, dry=submission.get("dry_run", False)) for job in names
    }
    runs = {run["id"]: _run(root / run["path"], jobs[run["job"]]) for run in submission["runs"]}
    return Tracked(root, submission, jobs, runs, ids, silent)


def _ask(
    root: Path, ids: Mapping[str, str], marks: Mapping[str, Mark | None], ledger: Ledger
) -> tuple[dict[str, Seen], str | None]:
    """What is known of the jobs after a question to the scheduler, if one is left to be asked."""
    seen = load(root)
    open_ids = {job: id for job, id in ids.items() if not _settled(job, marks[job], seen.get(job), ledger)}
    if not open_ids:
        return seen, None
    silent, words = None, dict[str, Word]()
    try:
        words = dict(open_scheduler(root).poll(list(open_ids.values())))
    except UserError as error:
        return seen, str(error)
    clock = time.time()
    found = {
        job: advance(seen.get(job), _parcel(job, ledger), words.get(id), clock, _ended(marks[job]))
        for job, id in open_ids.items()
    }
    new = {**seen, **{job: one for job, one in found.items() if one is not None}}
    if new != seen:
        save(root, new)
    return new, silent


def _parcel(job: str, ledger: Ledger) -> str:
    handed = ledger.of(job)
    return handed.name if handed else ""


def _settled(job: str, mark: Mark | None, seen: Seen | None, ledger: Ledger) -> bool:
    """Whether the scheduler has nothing to add: the script told its end, and that is good or explained."""
    handed = ledger.of(job)
    if mark is None or handed is None or mark.attempt <= handed.begun[job] or mark.state != "ended":
        return False
    if mark.exit == 0:
        return True
    heard = seen is not None and seen.parcel == handed.name and seen.ended == mark.attempt
    return heard and seen is not None and not seen.word.state.alive and seen.word.state is not State.PREEMPTED


def _ended(mark: Mark | None) -> int:
    return mark.attempt if mark is not None and mark.state == "ended" else 0


def _job(job: str, mark: Mark | None, ledger: Ledger, seen: Seen | None, silent: str | None, *, dry: bool) -> Status:
    handed = ledger.of(job)
    if handed is None and mark is None:
        return Status(State.PENDING, "a dry run: not submitted" if dry else "not handed in: `hpcbench submit` again")
    if seen is not None and seen.parcel != _parcel(job, ledger):
        seen = None
    return judge_job(job, mark, handed, seen, silent=silent, clock=time.time())


def _run(directory: Path, job: Status) -> Status:
    return judge_run(directory, read_mark(directory), job)
