"""LSF: jobs go in through submitit; bjobs and bhist tell how they stand."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.cancelling import Force, cancel
from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf_query import LsfQuery
from hpcbench.batch.schedulers.scheduler import Receipt, Scheduler, register_scheduler
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError

TERMINATE_WAIT = 45.0
"""Seconds between a cancel and the next, harder one: LSF itself sends SIGINT, SIGTERM and SIGKILL 10 s apart."""

_REFUSED = re.compile(r"Job <([^>]+)>: (.+)")
_OVER = re.compile("already finished|No matching job|is being terminated|is not found")


@register_scheduler("lsf")
class Lsf(Scheduler):
    """LSF, from a node where its programs are."""

    programs = ("bsub", "bjobs", "bkill")

    def __init__(self, root: Path, site: Site) -> None:
        super().__init__(root, site)
        self._query = LsfQuery()

    def submit(self, job: BatchJob) -> Receipt:
        """Hand in a script by `bsub`, through submitit."""
        from hpcbench.batch.schedulers.submitit_lsf import LSFScriptExecutor
        from hpcbench.batch.schedulers.submitit_script import Script, receipt

        executor = LSFScriptExecutor(self.root, self.site.scheduler.hand_in)
        taken = executor.submit(Script(self.root / job.script, tuple(_options(job))))
        elements = [f"{taken.job_id}[{k + 1}]" for k in range(len(job.jobs))] if job.array else [taken.job_id]
        return receipt(taken, elements)

    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up what was handed in under a name."""
        ids = self._query.named(lsf_name(name))
        found = sorted({job.partition("[")[0] for job in ids})
        if not found:
            return None
        if len(found) > 1:
            raise UserError(f"several jobs of LSF have the name {name}: {', '.join(found)}: end all but one with bkill")
        array = jobs > 1 or any("[" in job for job in ids)
        return Receipt(found[0], [f"{found[0]}[{k + 1}]" for k in range(jobs)] if array else found)

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The answers of `bjobs` and `bhist` about these ids."""
        return self._query.words(ids)

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """End running jobs and drop waiting ones by `bkill`."""
        forces = [Force(lambda some: _bkill(some, []), TERMINATE_WAIT), Force(lambda some: _bkill(some, ["-r"]), 10.0)]
        return cancel(ids, self._query.listed, forces)


def lsf_name(name: str) -> str:
    """A name without hyphens: filters of some sites take any ``-n`` on the command line for the option."""
    return name.replace("-", "_")


def _options(job: BatchJob) -> list[str]:
    """On the command line, where they win over what the script says."""
    array = f"[1-{len(job.jobs)}]" if job.array else ""
    options = ["-J", lsf_name(job.name) + array]
    if job.after:
        kind = "ended" if job.after_any else "done"
        options += ["-w", " && ".join(f"{kind}({id})" for id in job.after)]
    return options


def _bkill(ids: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """What LSF said of those that it will not end."""
    refused: dict[str, str] = {}
    for some in portions(ids):
        answer = ask(["bkill", *options, *some], plain_environment())
        said = {match[1]: match[2].strip() for match in _REFUSED.finditer(answer.said)}
        if answer.status and not said and not _OVER.search(answer.said):
            raise UserError(f"bkill: {answer.first_line}")
        refused.update((job, why) for job, why in said.items() if job in some and not _OVER.search(why))
    return refused
