"""Crash-safe job submission. If a process is killed, no job is lost or submitted twice."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.after import After
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, seconds
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt, UnclearError
from hpcbench.batch.scripts.render import RELAY
from hpcbench.batch.tracking.ledger import Ledger, SubmittedJob
from hpcbench.batch.tracking.marks import count_attempts, read_mark, scheduler_id
from hpcbench.contract.claim import close_claim
from hpcbench.errors import UserError

Progress = Callable[[int, int], None]
"""Callback ``progress(submitted, total)``, called with the numbers of jobs after each submission."""

_AGAIN = 2.0
"""Seconds between two searches for a job that has no receipt."""
_LOOKS = (0.5, 2.0, 5.0)
"""Delay in seconds before each search for a job after an unclear response. A busy scheduler lists jobs late."""


def submit_jobs(
    scheduler: JobScheduler,
    ledger: Ledger,
    jobs: Sequence[BatchJob],
    *,
    name: str,
    after: After | None = None,
    progress: Progress = lambda done, all: None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Submit the jobs. Return the scheduler's note for the user.

    Parameters
    ----------
    name
        Prefix of the jobs' names in the queue, unique among all submissions.
    after
        Submission that must end before the jobs start.
    progress, sleep
        Callback ``progress(submitted, total)``, and function that sleeps for a number of seconds.

    Raises
    ------
    UserError
        The scheduler refused a job, or the response is unclear. Earlier jobs remain submitted. Running the
        same command again resumes the submission.
    """
    if after is not None and len(after.ids) > scheduler.most_after and (ledger.root / RELAY).is_file():
        after = _relayed(scheduler, ledger, after, name, sleep)
    for done, job in enumerate(jobs):
        again = ledger.count_submissions(job.jobs[0])
        begun = {id: count_attempts(ledger.root, id) for id in job.jobs}
        if again:
            for id in job.jobs:  # The jobs have ended, but a compute node may be unable to query the scheduler.
                close_claim(ledger.root / "jobs" / id, now())
        job = replace(job, name=scheduler.queue_name(name, job.name, again))
        if after is not None:
            job = replace(job, after=after.ids, after_any=after.any_end)
        try:
            _submit(scheduler, ledger, job, begun, sleep)
        except UserError as error:
            scheduler.begin()
            where = f" ({done} of {len(jobs)} are submitted; run the same command to continue)" if done else ""
            raise UserError(f"{error}{where}") from None
        progress(done + 1, len(jobs))
    return scheduler.begin()


def _submit(
    scheduler: JobScheduler, ledger: Ledger, job: BatchJob, begun: dict[str, int], sleep: Callable[[float], None]
) -> SubmittedJob:
    """Submit a job and record the result in the ledger."""
    submitted = ledger.open(job, begun)
    try:
        receipt = scheduler.submit(submitted)
    except UnclearError as error:
        receipt = _look_again(scheduler, submitted, error, sleep)
    except UserError:
        ledger.drop(submitted)
        raise
    return ledger.close(submitted, receipt)


def _relayed(scheduler: JobScheduler, ledger: Ledger, after: After, name: str, sleep: Callable[[float], None]) -> After:
    """Replace a long list of ids with relay jobs. Each relay job waits for a part of the list."""
    ids = []
    for number, begin in enumerate(range(0, len(after.ids), scheduler.most_after), 1):
        relay, some = f"w{number:02d}", after.ids[begin : begin + scheduler.most_after]
        submitted = ledger.of(relay)
        if submitted is None or submitted.id is None:
            job = BatchJob(scheduler.queue_name(name, relay), RELAY, [relay], after=some, after_any=after.any_end)
            submitted = _submit(scheduler, ledger, job, {relay: 0}, sleep)
        ids.append(str(submitted.id))
    return replace(after, ids=ids)


def _look_again(
    scheduler: JobScheduler, submitted: SubmittedJob, unclear: UnclearError, sleep: Callable[[float], None]
) -> Receipt:
    silent = ""
    for pause in _LOOKS:
        sleep(pause)
        try:
            receipt = scheduler.find(submitted.name, len(submitted.jobs))
        except UserError as error:
            silent = str(error)
            continue
        if receipt is not None:
            return receipt
        silent = ""
    queue = (
        f"and the queue cannot be searched ({silent})" if silent else f"and the queue has no {submitted.name} so far"
    )
    raise UserError(
        f"{unclear}, {queue}: run the same command again, which first searches for the job (recorded in "
        f"handed/{submitted.number:04d}.json)"
    )


def settle(scheduler: JobScheduler, ledger: Ledger, *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Search for jobs without a receipt. Return the number of jobs that the scheduler has accepted.

    A recent job may be listed late, because the submission call may continue after its command was killed.
    """
    taken = 0
    for submitted in [job for job in ledger.submitted if job.id is None]:
        age = max(0.0, time.time() - (seconds(submitted.time) or 0.0))
        receipt = _look(scheduler, ledger, submitted)
        while receipt is None and age < scheduler.slowest:
            sleep(_AGAIN)
            age += _AGAIN
            receipt = _look(scheduler, ledger, submitted)
        if receipt is None:
            ledger.drop(submitted)
        else:
            ledger.close(submitted, receipt)
            taken += 1
    return taken


def _look(scheduler: JobScheduler, ledger: Ledger, submitted: SubmittedJob) -> Receipt | None:
    """Search for a job by the id in its status file, or by its name in the queue."""
    return _find_by_status(scheduler, ledger.root, submitted) or scheduler.find(submitted.name, len(submitted.jobs))


def _find_by_status(scheduler: JobScheduler, root: Path, submitted: SubmittedJob) -> Receipt | None:
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
