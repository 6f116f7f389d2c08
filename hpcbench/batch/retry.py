"""What failed for a reason that a second try can mend, once more."""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.deliver import Order, deliver, settle
from hpcbench.batch.judge import Status
from hpcbench.batch.ledger import Ledger
from hpcbench.batch.lock import locked
from hpcbench.batch.marks import read_mark
from hpcbench.batch.opened import open_scheduler
from hpcbench.batch.states import State
from hpcbench.batch.submission_file import check_place
from hpcbench.batch.track import track
from hpcbench.errors import UserError

_MENDS = (State.STOPPED, State.NODE_FAILED, State.PREEMPTED, State.TIMED_OUT, State.LOST)
"""Ends that say nothing against the run itself."""


@dataclass(frozen=True)
class Retried:
    """What was handed in again."""

    jobs: list[str]
    runs: list[str]
    left: dict[str, str]
    """Runs that were not, and why."""
    note: str


def retry(root: Path, *, all: bool = False, whole: bool = False) -> Retried:
    """Hand in the jobs again whose runs did not complete; completed runs of the same job are kept.

    A run that left a checkpoint goes on from there.

    Parameters
    ----------
    all
        Runs, too, that failed by themselves, ran out of memory or were cancelled.
    whole
        Repeat all runs of those jobs from their beginning, so that a pair shares an allocation again.

    Raises
    ------
    UserError
        The submission was a dry run, its scheduler cannot be asked or refuses, or another command is at work on it.
    """
    root = root.absolute()  # schedulers' programs are called elsewhere, and are told where the script is
    with locked(root.parent):
        ledger, scheduler = Ledger(root), open_scheduler(root)
        if any(parcel.id is None for parcel in ledger.parcels):
            settle(scheduler, ledger)
        tracked = track(root)
        if tracked.submission.get("dry_run"):
            raise UserError(f"{root}: a dry run: there is nothing to try again: submit the study without --dry-run")
        check_place(root, tracked.submission)
        if tracked.silent:
            raise UserError(f"{root}: {tracked.silent}: what runs must not be handed in twice: ask again later")
        left: dict[str, str] = {}
        again: dict[str, list[str]] = {}
        for run in tracked.submission["runs"]:
            status = tracked.runs[run["id"]]
            reason = _why_not(status, tracked.jobs[run["job"]], root / run["path"], all=all)
            if reason is None:
                again.setdefault(run["job"], []).append(run["id"])
            elif status.state is not State.COMPLETED:
                left[run["id"]] = reason
        for job in again:
            own = [run for run in tracked.submission["runs"] if run["job"] == job]
            again[job] = [run["id"] for run in own] if whole else again[job]
            for run in own:
                mark = read_mark(root / run["path"])
                if run["id"] in again[job] and mark is not None and (whole or mark.exit == 0):
                    _put_aside(root / run["path"], mark.attempt, checkpoint=whole)
        orders = [Order(job, f"jobs/{job}/job.sh", [job]) for job in again]
        note = deliver(root, scheduler, ledger, orders, name=tracked.submission["name"]) if orders else ""
    return Retried(list(again), [run for runs in again.values() for run in runs], left, note)


def _why_not(status: Status, job: Status, directory: Path, *, all: bool) -> str | None:
    """Why a run is not tried again; None if it is."""
    if status.state is State.COMPLETED:
        return "completed"
    if job.state.alive:
        return f"its job is {job.state.value}"
    if status.state is State.UNKNOWN:
        return None if all else f"unknown ({status.reason}): --all tries it again"
    if status.state is State.PENDING:
        return "was not handed in: `hpcbench submit` again"
    if status.state is State.TIMED_OUT and not all and not any((directory / "checkpoint").glob("step-*")):
        return "timed out without a checkpoint, and would again: submit it with a longer walltime, or use --all"
    if status.state in _MENDS or all:
        return None
    return f"{status.state.value}{f' ({status.reason})' if status.reason else ''}: --all tries it again"


def _put_aside(directory: Path, number: int, *, checkpoint: bool) -> None:
    """Number what a run has left, so that its job script, which keeps what completed, launches it again."""
    names = ["status.json", "log.txt", "err.txt", *(["checkpoint"] if checkpoint else [])]
    for path in (directory / name for name in names):
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.{number}{path.suffix}"))
