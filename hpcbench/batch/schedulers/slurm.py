"""Slurm backend. Jobs are submitted with sbatch and polled with squeue and sacct."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.cancelling import Force, cancel
from hpcbench.batch.schedulers.clean_environment import clean_environment, plain_environment
from hpcbench.batch.schedulers.client import ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt
from hpcbench.batch.schedulers.slurm_query import SlurmQuery, since
from hpcbench.batch.schedulers.submit_command import submit_script
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError

KILL_WAIT = 45.0
"""Seconds before a cancellation escalates. Slurm itself waits 30 s between SIGTERM and SIGKILL."""

_REFUSED = re.compile(r"Kill job error on job id (\S+): (.+)")
_OVER = re.compile("already completing or completed|Invalid job id")


class Slurm(JobScheduler):
    """Slurm, used from a node with Slurm commands."""

    kind = "slurm"
    programs = ("sbatch", "squeue", "scancel")

    def __init__(self, root: Path, site: Site) -> None:
        super().__init__(root, site)
        self._query = SlurmQuery(since(root))

    def preflight(self, jobs: Sequence[BatchJob], account: str | None) -> Iterable[str]:
        """Check that Slurm would accept the jobs. Yield lines for the user."""
        from hpcbench.batch.schedulers.slurm_dialect import DIALECT
        from hpcbench.batch.schedulers.slurm_preflight import preflight

        return preflight(self.root, jobs, account, DIALECT)

    def submit(self, job: BatchJob) -> Receipt:
        """Submit a script with `sbatch`."""
        from hpcbench.batch.schedulers.slurm_dialect import DIALECT

        argv = ["sbatch", *_options(job), str(self.root / job.script)]
        id, answer = submit_script(argv, clean_environment(), DIALECT, cwd=self.root)
        elements = self.list_elements(id, len(job.jobs)) if job.array else [id]
        return Receipt(id, elements, answer.argv, answer.output)

    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up the job with a given name."""
        return self.choose(self._query.named(name), jobs)

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids of live jobs with these names."""
        items = [item for some in portions(names) for item in self._query.named(*some).items()]
        return [id for id, word in items if word.state.alive]

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids as reported by `squeue` and `sacct`."""
        return self._query.read_statuses(ids)

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs with `scancel`."""
        forces = [Force(lambda some: _scancel(some, []), KILL_WAIT)]
        forces.append(Force(lambda some: _scancel(some, ["--signal=KILL", "--full"]), 10.0))
        return cancel(ids, self._query.listed, forces)


def _options(job: BatchJob) -> list[str]:
    """Return command-line options, which override the options in the script."""
    options = [f"--job-name={job.name}"]
    if job.array:
        options.append(f"--array=1-{len(job.jobs)}")
    if job.after:
        kind = "afterany" if job.after_any else "afterok"
        options.append(f"--dependency={kind}:" + ":".join(job.after))
        options.append("--kill-on-invalid-dep=yes")  # otherwise the job waits forever after a dependency failed
    return options


def _scancel(ids: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """Cancel jobs. Return Slurm's response for each job that it refuses to cancel."""
    refused: dict[str, str] = {}
    for some in portions(ids):
        answer = ask(["scancel", *options, *some], plain_environment())
        refusals = {match[1]: match[2].strip() for match in _REFUSED.finditer(answer.err)}
        if answer.status and not refusals:
            raise UserError(f"scancel: {answer.first_line}")
        refused.update((job, why) for job, why in refusals.items() if not _OVER.search(why))
    return refused
