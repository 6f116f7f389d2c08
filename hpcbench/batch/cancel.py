"""The end of what runs of a submission, and of nothing else."""

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
from hpcbench.errors import UserError


def cancel(root: Path, only: str | None = None) -> str:
    """End what runs and drop what waits; returns one line for the user.

    Parameters
    ----------
    only
        Which runs, as `matching` reads it; a job ends as a whole, so that all its runs must be named that are not over.

    Raises
    ------
    UserError
        The scheduler cannot be asked, somebody handed the jobs in by hand, or another command is at work on the study.
        A run shares its job with others that are not named, or no run is named.
    """
    with locked(root.parent):
        ledger, scheduler = Ledger(root), open_scheduler(root)
        if any(job.id is None for job in ledger.submitted):
            settle(scheduler, ledger)
        tracked = track(root)
        open_ = (State.UNKNOWN, State.LOST)  # nobody knows that it has ended: its scheduler may
        states = {job: status.state for job, status in tracked.jobs.items()}
        wanted = set(tracked.ids) if only is None else _jobs_of(tracked, only)
        open_jobs = [job for job in tracked.ids if states[job].alive or states[job] in open_]
        ids = [tracked.ids[job] for job in open_jobs if job in wanted]
        if not ids and open_jobs:
            return "nothing of that waits or runs any more"
        if not ids:
            by_hand = [mark.id or job for job in tracked.jobs if job not in tracked.ids and (mark := _runs(root, job))]
            if by_hand:
                raise UserError(f"{root}: handed in by hand: end its jobs there, by their marks: {', '.join(by_hand)}")
            return "nothing waits or runs any more" if tracked.ids else "nothing was handed in"
        # Written down before: a job may leave its mark, or this command be killed, before the answer comes.
        meant: dict[int, list[str]] = {}
        for job, id in tracked.ids.items():
            if id in ids and (handed := ledger.of(job)) is not None:
                meant.setdefault(handed.number, []).append(id)
        its = [handed for handed in ledger.submitted if handed.number in meant]
        cancelled = [(ledger.cancel(handed), meant[handed.number]) for handed in its]
        # A call may have been sent again, by the scheduler's program or a site's wrapper: no copy must begin now.
        more = scheduler.copies([handed.name for handed, _ in cancelled])
        relays = [handed.id for handed in ledger.submitted if handed.id and not set(handed.jobs) & set(tracked.jobs)]
        more += [id for id, word in (scheduler.poll(relays) if relays else {}).items() if word.state.alive]
        ids = list(dict.fromkeys([*ids, *more]))
        try:
            said = scheduler.cancel(ids)
        except UserError:
            _take_back(ledger, cancelled, {})
            raise
        _take_back(ledger, cancelled, said)
    counts = Counter(said.get(id, "no answer") for id in ids)
    return ", ".join(f"{count} job{'' if count == 1 else 's'}: {words}" for words, count in counts.most_common())


def _jobs_of(tracked: Tracked, only: str) -> set[str]:
    """The jobs all of whose open runs are named."""
    planned = tracked.submission.runs
    values = {run.id: {"scheme": run.scheme, "repeat": run.repeat, **run.cell} for run in planned}
    named = matching(values, only)
    jobs = {run.job for run in planned if run.id in named}
    for run in planned:
        if run.job in jobs and run.id not in named and tracked.runs[run.id].state.alive:
            raise UserError(
                f"--only {show(only)}: job {run.job} ends as a whole, and holds {run.id} too, which is not over: "
                "name that run as well"
            )
    return jobs


def _take_back(
    ledger: Ledger, cancelled: Sequence[tuple[SubmittedJob, Sequence[str]]], said: Mapping[str, str]
) -> None:
    """What was not cancelled after all may yet fail by itself, and is then to say so."""
    for job, ids in cancelled:
        if not any(said.get(id, "").startswith(("ended", "told to end")) for id in ids):
            ledger.lives_on(job)


def _runs(root: Path, job: str) -> Mark | None:
    mark = read_mark(root / "jobs" / job)
    return mark if mark is not None and mark.state == "running" else None
