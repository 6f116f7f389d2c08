"""Cancellation of a submission's jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.batch.match_runs import matching
from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.submit_jobs import settle
from hpcbench.batch.tracking.ledger import Ledger, SubmittedJob
from hpcbench.batch.tracking.lock import locked
from hpcbench.batch.tracking.marks import read_mark
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.mark import Mark
from hpcbench.contract.problems import show
from hpcbench.contract.state import State
from hpcbench.contract.text import count_noun
from hpcbench.errors import UserError


def cancel(root: Path, only: str | None = None) -> str:
    """Cancel running and pending jobs. Return one line for the user.

    Parameters
    ----------
    only
        Expression that selects runs, as in `matching`. A job can only be cancelled as a whole, so all of its unfinished
        runs must match.

    Raises
    ------
    UserError
        The scheduler does not respond, the jobs were submitted by hand, or another command holds the lock. The error is
        also raised if no run matches, or if a job with a matching run has unfinished runs that do not match.
    """
    with locked(root.parent):
        ledger, scheduler = Ledger(root), open_scheduler(root)
        settle(scheduler, ledger)
        tracked = track(root)
        open_ = (State.UNKNOWN, State.LOST)  # the job may still be running, as the scheduler may report
        states = {job: status.state for job, status in tracked.jobs.items()}
        wanted = set(tracked.ids) if only is None else _jobs_of(tracked, only)
        open_jobs = [job for job in tracked.ids if states[job].alive or states[job] in open_]
        ids = [tracked.ids[job] for job in open_jobs if job in wanted]
        if not ids and open_jobs:
            return "none of the selected jobs is waiting or running"
        if not ids:
            by_hand = [mark.id or job for job in tracked.jobs if job not in tracked.ids and (mark := _runs(root, job))]
            if by_hand:
                raise UserError(
                    f"{root}: was submitted by hand: cancel its jobs with the scheduler's own command "
                    f"({', '.join(by_hand)})"
                )
            return "no job is waiting or running" if tracked.ids else "nothing was submitted"
        # Record the cancellation first. The job may end, or this command may be killed, before the response arrives.
        meant: dict[int, list[str]] = {}
        for job, id in tracked.ids.items():
            if id in ids and (record := ledger.of(job)) is not None:
                meant.setdefault(record.number, []).append(id)
        records = [record for record in ledger.submitted if record.number in meant]
        cancelled = [(ledger.cancel(record), meant[record.number]) for record in records]
        # If a call was sent twice, copies of a job are queued. They must not start now.
        more = scheduler.copies([record.name for record, _ in cancelled])
        relays = [record.id for record in ledger.submitted if record.id and not set(record.jobs) & set(tracked.jobs)]
        more += [id for id, word in (scheduler.poll(relays) if relays else {}).items() if word.state.alive]
        ids = list(dict.fromkeys([*ids, *more]))
        try:
            answers = scheduler.cancel(ids)
        except UserError:
            _take_back(ledger, cancelled, {})
            raise
        _take_back(ledger, cancelled, answers)
    counts = Counter(answers.get(id, "no answer") for id in ids)
    return ", ".join(f"{count_noun(count, 'job')}: {outcome}" for outcome, count in counts.most_common())


def _jobs_of(tracked: Tracked, only: str) -> set[str]:
    """Return the jobs with matching runs. All unfinished runs of these jobs must match."""
    planned = tracked.submission.runs
    values = {run.id: {"scheme": run.scheme, "repeat": run.repeat, **run.cell} for run in planned}
    named = matching(values, only)
    jobs = {run.job for run in planned if run.id in named}
    for run in planned:
        if run.job in jobs and run.id not in named and tracked.runs[run.id].state.alive:
            raise UserError(
                f"--only {show(only)}: does not select run {run.id} of job {run.job}, but a job can only be cancelled "
                "as a whole: select that run, too"
            )
    return jobs


def _take_back(
    ledger: Ledger, cancelled: Sequence[tuple[SubmittedJob, Sequence[str]]], answers: Mapping[str, str]
) -> None:
    """Record that these jobs were not cancelled, so that later failures are not attributed to a cancellation."""
    for job, ids in cancelled:
        if not any(answers.get(id, "").startswith(("ended", "signaled")) for id in ids):
            ledger.clear_cancellation(job)


def _runs(root: Path, job: str) -> Mark | None:
    mark = read_mark(root / "jobs" / job)
    return mark if mark is not None and mark.state == "running" else None
