"""A job or a job array, which is submitted in one call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.site import Site


@dataclass(frozen=True)
class BatchJob:
    """A job, or an array of jobs with the same shape."""

    name: str
    """Id within the submission. After submission, the name in the queue (see `Scheduler.queue_name`)."""
    script: str
    """Path of the script, relative to the submission directory."""
    jobs: list[str]
    """Job ids within the submission. Array element k + 1 runs job k."""
    array: bool = False
    after: Sequence[str] = ()
    """Ids of the jobs that must end before this job starts, as in `Receipt.id`."""
    after_any: bool = False
    """Whether those jobs may end in any state, including failure. By default, all of them must succeed."""


def batch_jobs(jobs: Sequence[Job], site: Site, *, arrays: int = 0) -> list[BatchJob]:
    """Group jobs with the same shape into arrays, in order and up to the site's maximum array length.

    Jobs with several runs are not grouped. There are only a few such jobs, and their names in the queue are useful.

    Parameters
    ----------
    arrays
        Number of existing arrays in the submission. The numbering of new arrays continues from this number.
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
