"""Job cancellation that escalates if the first signal has no effect."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State


@dataclass(frozen=True)
class Force:
    """A method of ending jobs."""

    end: Callable[[Sequence[str]], Mapping[str, str]]
    """Function that takes job ids and returns the scheduler's response for each job that it refuses to end."""
    patience: float
    """Seconds to wait before the next method is tried."""


def cancel(
    ids: Sequence[str],
    query: Callable[[Sequence[str]], Mapping[str, JobStatus]],
    forces: Sequence[Force],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """End these jobs. For each job, return ``ended``, ``already over``, or the reason why it could not be cancelled.

    Parameters
    ----------
    query
        Function that returns the statuses of those ids that the scheduler still lists.
    forces
        Methods to end jobs, mildest first.
    """
    wanted = list(dict.fromkeys(ids))
    statuses = query(wanted)
    left = _alive(wanted, statuses)
    outcomes = {job: "already over" for job in wanted if job not in left}
    refused: Mapping[str, str] = {}
    for force in forces:
        left = [job for job in left if job not in refused]
        if not left:
            break
        refused = {**refused, **force.end(left)}
        statuses = _wait([job for job in left if job not in refused], query, force.patience, sleep)
        still = _alive(left, statuses)
        outcomes.update((job, "ended") for job in left if job not in still and job not in refused)
        left = still
    outcomes.update(
        (job, f"signaled, but not over: {statuses[job].reason or statuses[job].state.value}") for job in left
    )
    outcomes.update(refused)
    return {job: outcomes[job] for job in wanted}


def _wait(
    jobs: Sequence[str],
    query: Callable[[Sequence[str]], Mapping[str, JobStatus]],
    patience: float,
    sleep: Callable[[float], None],
) -> Mapping[str, JobStatus]:
    """Wait until all jobs have ended or the time has elapsed. Return their statuses."""
    waited, pause = 0.0, 0.5
    statuses = query(jobs) if jobs else {}
    while _alive(jobs, statuses) and waited < patience:
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, 8.0)
        statuses = query(jobs)
    return statuses


def _alive(jobs: Sequence[str], statuses: Mapping[str, JobStatus]) -> list[str]:
    """Return the jobs that may still hold nodes, including jobs on dead hosts."""
    return [
        job
        for job in jobs
        if job in statuses and (statuses[job].state.alive or statuses[job].state in (State.UNKNOWN, State.LOST))
    ]
