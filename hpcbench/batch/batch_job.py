"""What a scheduler is handed by one call: a script with one job, or with an array of jobs where it has arrays."""

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
    """Relative to the submission."""
    jobs: list[str]
    """Ids of our jobs; element k + 1 of an array is job k."""
    array: bool = False
    after: Sequence[str] = ()
    """Ids, as `Receipt.id` has them, of what must have ended before this begins."""
    after_any: bool = False
    """Begin however those ended; else only when all ended well."""


def batch_jobs(jobs: Sequence[Job], site: Site, *, arrays: int = 0) -> list[BatchJob]:
    """The jobs in their order, as arrays of one shape as long as the site allows.

    A job with several runs stays alone: there are few of them, and they are told apart in the queue.
    The names of arrays follow those of the first `arrays` ones.
    """
    if site.scheduler.max_array is None or any(len(job.runs) > 1 for job in jobs):
        return [_single(job.id) for job in jobs]
    alike: dict[tuple[object, ...], list[str]] = {}
    for job in jobs:
        key = (job.shape, tuple(job.launch), job.walltime, job.queue, job.account)
        alike.setdefault(key, []).append(job.id)
    found = []
    for part in (part for group in alike.values() for part in _cut(group, site.scheduler.max_array)):
        if len(part) == 1:
            found.append(_single(part[0]))
        else:
            arrays += 1
            name = f"a{arrays:02d}"
            found.append(BatchJob(name, f"arrays/{name}.sh", part, array=True))
    return found


def _single(job: str) -> BatchJob:
    return BatchJob(job, f"jobs/{job}/job.sh", [job])


def _cut(jobs: list[str], most: int) -> Iterator[list[str]]:
    for begin in range(0, len(jobs), most):
        yield jobs[begin : begin + most]
