"""Jobs into the hands of a scheduler, so that none is lost and none handed in twice, whoever dies in between."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.after import After
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, seconds
from hpcbench.batch.schedulers.scheduler import Receipt, Scheduler, UnclearError
from hpcbench.batch.scripts.render import RELAY
from hpcbench.batch.tracking.ledger import Ledger, SubmittedJob
from hpcbench.batch.tracking.marks import attempts_begun, read_mark, scheduler_id
from hpcbench.contract.claim import close_claim
from hpcbench.errors import UserError

Progress = Callable[[int, int], None]
"""Told how many jobs of how many are handed in."""

_AGAIN = 2.0
"""Seconds between two looks for a job whose answer nobody has heard."""
_LOOKS = (0.5, 2.0, 5.0)
"""Seconds before each look for a job whose submission was unclear: what is too busy to answer is slow to list."""


def submit_jobs(
    scheduler: Scheduler,
    ledger: Ledger,
    jobs: Sequence[BatchJob],
    *,
    name: str,
    after: After | None = None,
    progress: Progress = lambda done, all: None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Hand in the jobs; returns the scheduler's line for the user.

    Parameters
    ----------
    name
        Begins their names in the queue; unique among all submissions.
    after
        What must have ended before.

    Raises
    ------
    UserError
        The scheduler refused one of them, or its answer does not say whether it took it. Those before it are handed in;
        the same command again goes on from there.
    """
    if after is not None and len(after.ids) > scheduler.most_after and (ledger.root / RELAY).is_file():
        after = _relayed(scheduler, ledger, after, name, sleep)
    for done, job in enumerate(jobs):
        again = ledger.times(job.jobs[0])
        begun = {id: attempts_begun(ledger.root, id) for id in job.jobs}
        if again:
            for id in job.jobs:  # it is known to be over; a compute node may have nobody to ask
                close_claim(ledger.root / "jobs" / id, now())
        job = replace(job, name=scheduler.queue_name(name, job.name, again))
        if after is not None:
            job = replace(job, after=after.ids, after_any=after.any_end)
        try:
            _hand_in(scheduler, ledger, job, begun, sleep)
        except UserError as error:
            scheduler.begin()
            where = f" ({done} of {len(jobs)} are handed in; the same command again goes on)" if done else ""
            raise UserError(f"{error}{where}") from None
        progress(done + 1, len(jobs))
    return scheduler.begin()


def _hand_in(
    scheduler: Scheduler, ledger: Ledger, job: BatchJob, begun: dict[str, int], sleep: Callable[[float], None]
) -> SubmittedJob:
    """Hand in one job, and keep in the ledger what became of that."""
    submitted = ledger.open(job, begun)
    try:
        receipt = scheduler.submit(submitted)
    except UnclearError as error:
        receipt = _look_again(scheduler, submitted, error, sleep)
    except UserError:
        ledger.drop(submitted)
        raise
    return ledger.close(submitted, receipt)


def _relayed(scheduler: Scheduler, ledger: Ledger, after: After, name: str, sleep: Callable[[float], None]) -> After:
    """The same to wait for, by way of jobs that do nothing and wait for a part of it each."""
    ids = []
    for number, begin in enumerate(range(0, len(after.ids), scheduler.most_after), 1):
        relay, some = f"w{number:02d}", after.ids[begin : begin + scheduler.most_after]
        handed = ledger.of(relay)
        if handed is None or handed.id is None:
            job = BatchJob(scheduler.queue_name(name, relay), RELAY, [relay], after=some, after_any=after.any_end)
            handed = _hand_in(scheduler, ledger, job, {relay: 0}, sleep)
        ids.append(str(handed.id))
    return replace(after, ids=ids)


def _look_again(
    scheduler: Scheduler, submitted: SubmittedJob, unclear: UnclearError, sleep: Callable[[float], None]
) -> Receipt:
    silent = ""
    for pause in _LOOKS:
        sleep(pause)
        try:
            found = scheduler.find(submitted.name, len(submitted.jobs))
        except UserError as error:
            silent = str(error)
            continue
        if found is not None:
            return found
        silent = ""
    queue = f"and nobody can look it up ({silent})" if silent else f"and the queue shows no {submitted.name} so far"
    raise UserError(
        f"{unclear}, {queue}: handed/{submitted.number:04d}.json keeps that in mind: "
        "the same command again looks for it first"
    )


def settle(scheduler: Scheduler, ledger: Ledger, *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Find out what became of jobs whose answer is missing; returns how many the scheduler has taken.

    What was handed in a moment ago may be listed later: whoever was killed may have left a call on its way.

    Raises
    ------
    UserError
        The scheduler cannot be asked.
    """
    taken = 0
    for submitted in [job for job in ledger.submitted if job.id is None]:
        age = max(0.0, time.time() - (seconds(submitted.time) or 0.0))
        found = _look(scheduler, ledger, submitted)
        while found is None and age < scheduler.slowest:
            sleep(_AGAIN)
            age += _AGAIN
            found = _look(scheduler, ledger, submitted)
        if found is None:
            ledger.drop(submitted)
        else:
            ledger.close(submitted, found)
            taken += 1
    return taken


def _look(scheduler: Scheduler, ledger: Ledger, submitted: SubmittedJob) -> Receipt | None:
    """What became of the job: its own marks say under which id it runs, else the scheduler may know its name."""
    return _by_marks(scheduler, ledger.root, submitted) or scheduler.find(submitted.name, len(submitted.jobs))


def _by_marks(scheduler: Scheduler, root: Path, submitted: SubmittedJob) -> Receipt | None:
    for job in submitted.jobs:
        mark = read_mark(root / "jobs" / job)
        id = scheduler_id(scheduler.kind, mark) if mark and mark.attempt > submitted.begun[job] else None
        if id is None:
            continue
        if not submitted.array:
            return Receipt(id, [id])
        element = re.fullmatch(r"(\d+)(\D+)\d+(\D*)", id)  # 123_4, 123[4]
        if element is not None:
            number, before, behind = element.groups()
            return Receipt(number, [f"{number}{before}{k + 1}{behind}" for k in range(len(submitted.jobs))])
    return None
