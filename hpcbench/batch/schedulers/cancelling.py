"""Ending jobs, with more force where the first word is not heard."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State


@dataclass(frozen=True)
class Force:
    """One way to end jobs."""

    end: Callable[[Sequence[str]], Mapping[str, str]]
    """Called with ids; gives what the scheduler said of those that it will not end."""
    patience: float
    """Seconds that they may take before the next way is tried."""


def cancel(
    ids: Sequence[str],
    query: Callable[[Sequence[str]], Mapping[str, JobStatus]],
    forces: Sequence[Force],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """End these jobs and no others; what became of each: ``ended``, ``already over``, or why not.

    Parameters
    ----------
    query
        Words of those ids that the scheduler still lists.
    forces
        Mildest first.
    """
    wanted = list(dict.fromkeys(ids))
    words = query(wanted)
    left = _alive(wanted, words)
    found = {job: "already over" for job in wanted if job not in left}
    refused: Mapping[str, str] = {}
    for force in forces:
        left = [job for job in left if job not in refused]
        if not left:
            break
        refused = {**refused, **force.end(left)}
        words = _wait([job for job in left if job not in refused], query, force.patience, sleep)
        still = _alive(left, words)
        found.update((job, "ended") for job in left if job not in still and job not in refused)
        left = still
    found.update((job, f"told to end, and still there: {_said(words[job])}") for job in left)
    found.update(refused)
    return {job: found[job] for job in wanted}


def _wait(
    jobs: Sequence[str],
    query: Callable[[Sequence[str]], Mapping[str, JobStatus]],
    patience: float,
    sleep: Callable[[float], None],
) -> Mapping[str, JobStatus]:
    """The words of these jobs when all are over, or the time is."""
    waited, pause = 0.0, 0.5
    words = query(jobs) if jobs else {}
    while _alive(jobs, words) and waited < patience:
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, 8.0)
        words = query(jobs)
    return words


def _alive(jobs: Sequence[str], words: Mapping[str, JobStatus]) -> list[str]:
    """Those that may still hold nodes; what a dead host keeps is among them."""
    return [
        job
        for job in jobs
        if job in words and (words[job].state.alive or words[job].state in (State.UNKNOWN, State.LOST))
    ]


def _said(word: JobStatus) -> str:
    return word.reason or word.state.value
