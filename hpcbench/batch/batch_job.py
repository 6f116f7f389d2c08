"""Unit of submission: a script with one job, or with an array of jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.site import Site


@dataclass(frozen=True)
class BatchJob:
    """A job, or an array of jobs of one shape."""

    name: str
    """Id within the submission; once it is submitted, its name in the queue: see `Scheduler.queue_name`."""
    script: str
    """Path of the script, relative to the submission."""
    jobs: list[str]
    """Ids of the jobs within the submission; element k + 1 of an array is job k."""
    array: bool = False
    after: Sequence[str] = ()
    """Ids, as in `Receipt.id`, of the jobs that must end before this one starts."""
    after_any: bool = False
    """Whether it starts after every end of those jobs; otherwise only after their success."""


def batch_jobs(jobs: Sequence[Job], site: Site, *, arrays: int = 0) -> list[BatchJob]:
    """Group jobs of one shape into arrays, as long as the site allows; keep their order.

    Jobs with several runs are not grouped: there are few of them, and their names in the queue are useful.

    Parameters
    ----------
    jobs
        Jobs to submit.
    site
        The site, with the maximum length of its arrays.
    arrays
        Number of arrays that the submission already has. The names of new arrays follow theirs.
    """
    if site.scheduler.max_array is None or any(len(job.runs) > 1 for job in jobs):
        return [_single(job.id) for job in jobs]
    groups: dict[tuple[object, ...], list[str]] = {}
    for job in jobs:
        key = (job.shape, tuple(job.launch), job.walltime, job.queue, job.account)
        groups.setdefault(key, []).append(job.id)
    batch_jobs = []
    for part in (part for group in groups.values() for part in _cut(group, site.scheduler.max_array)):
        if len(part) == 1:
            batch_jobs.append(_single(part[0]))
        else:
            arrays += 1
            name = f"a{arrays:02d}"
            batch_jobs.append(BatchJob(name, f"arrays/{name}.sh", part, array=True))
    return batch_jobs


def _single(job: str) -> BatchJob:
    return BatchJob(job, f"jobs/{job}/job.sh", [job])


def _cut(jobs: list[str], most: int) -> Iterator[list[str]]:
    for begin in range(0, len(jobs), most):
        yield jobs[begin : begin + most]
