"""LSF backend. Jobs are submitted with bsub and polled with bjobs and bhist."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.cancelling import Force, cancel
from hpcbench.batch.schedulers.clean_environment import clean_environment, plain_environment
from hpcbench.batch.schedulers.client import ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf_dialect import DIALECT, OVER, build_bsub_command
from hpcbench.batch.schedulers.lsf_query import HANGS, LsfQuery
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt
from hpcbench.batch.schedulers.submit_command import submit_script
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError

TERMINATE_WAIT = 45.0
"""Seconds before a cancellation escalates. LSF itself sends SIGINT, SIGTERM and SIGKILL 10 s apart."""

_REFUSED = re.compile(r"Job <([^>]+)>: (.+)")


class Lsf(JobScheduler):
    """LSF, used from a node with LSF commands."""

    kind = "lsf"
    programs = ("bsub", "bjobs", "bkill")
    most_after = 100
    element = "{}[{}]"

    def __init__(self, root: Path, site: Site) -> None:
        super().__init__(root, site)
        self._query = LsfQuery()

    def preflight(self, jobs: Sequence[BatchJob], account: str | None) -> Iterable[str]:
        """Check the queues of the jobs with `bqueues`."""
        from hpcbench.batch.schedulers.lsf_preflight import preflight

        return preflight(self.root, jobs)

    def submit(self, job: BatchJob) -> Receipt:
        """Submit a script with `bsub`."""
        script = self.root / job.script
        by = self.site.scheduler.hand_in
        path = script if by == "stdin" else script.relative_to(self.root)
        options = _options(job, ends_orphans="-ti" not in self.site.scheduler.refuses)
        argv = build_bsub_command(path, options, by)
        id, answer = submit_script(argv, clean_environment(), DIALECT, cwd=self.root)
        elements = self.list_elements(id, len(job.jobs)) if job.array else [id]
        return Receipt(id, elements, answer.argv, answer.output)

    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up the job with a given name."""
        return self.choose(self._query.named(_plain(name)), jobs)

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids of live jobs with these names.

        Each name requires a separate call, because bjobs accepts only one name per call.
        """
        items = [item for name in names for item in self._query.named(_plain(name)).items()]
        return [id for id, word in items if word.state.alive or word.state is State.UNKNOWN]

    def queue_name(self, submission: str, job: str, before: int = 0) -> str:
        """Return the name without hyphens, because submission filters at some sites parse any ``-n`` as an option."""
        return _plain(super().queue_name(submission, job, before))

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids as reported by `bjobs` and `bhist`."""
        return self._query.read_statuses(ids)

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs with `bkill`."""
        forces = [Force(lambda some: _bkill(some, []), TERMINATE_WAIT), Force(lambda some: _bkill(some, ["-r"]), 10.0)]
        return cancel(ids, self._query.listed, forces)


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _options(job: BatchJob, *, ends_orphans: bool) -> list[str]:
    """Return command-line options, which override the options in the script.

    Parameters
    ----------
    ends_orphans
        Whether this LSF version supports -ti, which ends a job whose dependency failed. Without -ti, such a job would
        wait forever.
    """
    array = f"[1-{len(job.jobs)}]" if job.array else ""
    options = ["-J", _plain(job.name) + array]
    if job.after:
        kind = "ended" if job.after_any else "done"
        options += ["-w", " && ".join(f"{kind}({id})" for id in job.after)]
        options += ["-ti"] if ends_orphans and not job.after_any else []
    return options


def _bkill(ids: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """End jobs. Return LSF's response for each job that it refuses to end."""
    refused: dict[str, str] = {}
    for some in portions(ids):
        answer = ask(["bkill", *options, *some], plain_environment(), hangs=HANGS)
        refusals = {match[1]: match[2].strip() for match in _REFUSED.finditer(answer.output)}
        if answer.status and not refusals and not OVER.search(answer.output):
            raise UserError(f"bkill: {answer.first_line}")
        refused.update((job, why) for job, why in refusals.items() if job in some and not OVER.search(why))
    return refused
