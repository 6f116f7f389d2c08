"""Jobs as they are handed in: one by one, or as job arrays where the scheduler has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.site import Site


@dataclass(frozen=True)
class Bundle:
    """Jobs that are handed in by one call."""

    label: str
    jobs: Sequence[Job]
    array: bool

    @property
    def script(self) -> str:
        """Relative to the submission."""
        return f"arrays/{self.label}.sh" if self.array else f"jobs/{self.label}/job.sh"


def bundle(jobs: Sequence[Job], site: Site) -> list[Bundle]:
    """The jobs in their order, as arrays of one shape as long as the site allows.

    A job with several runs stays alone: there are few of them, and they are told apart in the queue.
    """
    if site.scheduler.max_array is None or any(len(job.runs) > 1 for job in jobs):
        return [Bundle(job.id, [job], array=False) for job in jobs]
    alike: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        key = (job.shape, tuple(job.launch), job.walltime, job.queue, job.account)
        alike.setdefault(key, []).append(job)
    parts = [part for group in alike.values() for part in _cut(group, site.scheduler.max_array)]
    found, number = [], 0
    for part in parts:
        if len(part) == 1:
            found.append(Bundle(part[0].id, part, array=False))
        else:
            number += 1
            found.append(Bundle(f"a{number:02d}", part, array=True))
    return found


def _cut(jobs: Sequence[Job], most: int) -> Iterator[Sequence[Job]]:
    for begin in range(0, len(jobs), most):
        yield jobs[begin : begin + most]
