"""Flux backend. Jobs are submitted with ``flux batch`` and polled with ``flux jobs``."""

import re
from collections.abc import Mapping, Sequence

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers import flux_answers
from hpcbench.batch.schedulers.accounts import flux_remedy
from hpcbench.batch.schedulers.clean_environment import clean_environment, plain_environment
from hpcbench.batch.schedulers.client import ProgramResult, SilenceError, ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt, UnclearError
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError

_UNCLEAR = re.compile(r"timed out|reset by peer|broken pipe|\[Errno (32|104|110)\]", re.IGNORECASE)
"""Messages that report a lost connection. The job may or may not have been submitted."""
_ACCOUNT = re.compile(r"\bbank\b|\baccount\b|\bproject\b", re.IGNORECASE)
"""Keywords in a refusal by flux-accounting."""


class Flux(JobScheduler):
    """A Flux instance: the system instance, or the instance selected by FLUX_URI."""

    kind = "flux"
    programs = ("flux",)

    @classmethod
    def check(cls, site: Site) -> None:
        """Check that Flux is usable here."""
        super().check(site)
        done = _flux("jobs", "-n", "-c", "1", "-o", "{id.dec}")
        if done.status:
            raise UserError(
                f"flux jobs: {done.first_line}: check that a Flux instance runs here and that FLUX_URI is correct"
            )

    def submit(self, job: BatchJob) -> Receipt:
        """Submit a script with `flux batch`."""
        script = self.root / job.script
        if len(job.jobs) != 1:
            raise UserError(f"{job.name}: Flux has no job arrays: submit its {len(job.jobs)} jobs one by one")
        scheme = "afterany" if job.after_any else "afterok"
        # The name on the command line overrides the name in the script, which several submissions may share.
        argv = ["batch", f"--job-name={job.name}", *(f"--dependency={scheme}:{id}" for id in job.after), str(script)]
        try:
            done = ask(["flux", *argv], {**clean_environment(keep=("FLUX_URI",)), "FLUX_F58_FORCE_ASCII": "1"})
        except SilenceError as error:
            raise UnclearError(f"flux batch {script}: {error}") from None
        id = flux_answers.submitted(done.out)
        if id is not None:  # An id means that the job was submitted, despite a warning or a nonzero exit status.
            return Receipt(id, [id], ["flux", *argv], done.output)
        refused = done.status and "error" in done.err.lower()
        if not refused or _UNCLEAR.search(done.err):
            raise UnclearError(f"flux batch {script}: printed no job ID (exit status {done.status}): {done.first_line}")
        remedy = f": {flux_remedy()}" if _ACCOUNT.search(done.err) else ""
        raise UserError(f"flux batch {script}: {done.first_line}: Flux refused the job{remedy}")

    def find(self, name: str, jobs: int) -> Receipt | None:
        """Look up the job with a given name."""
        return self.choose(_named(name), 1)

    def copies(self, names: Sequence[str]) -> list[str]:
        """Return the ids of live jobs with these names.

        Each name requires a separate call, because Flux accepts only one name per call.
        """
        return [id for name in names for id, word in _named(name).items() if word.state.alive]

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids as reported by `flux jobs`."""
        statuses: dict[str, JobStatus] = {}
        for some in portions(ids):
            done = _flux("jobs", "-n", "-o", flux_answers.FORMAT, *some)
            portion = flux_answers.read_statuses(done.out)
            if done.status and not portion and "unknown" not in done.err:
                raise UserError(f"flux jobs: {done.first_line}")
            statuses.update(portion)
        return {id: statuses[id] for id in ids if id in statuses}

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs with `flux cancel`."""
        statuses = self.poll(ids)
        alive = [id for id, word in statuses.items() if word.state.alive]
        answers = {id: "already over" if id in statuses else "unknown to Flux" for id in ids}
        # If a job has just ended, a single call for all ids would fail without naming it.
        for id in alive:
            done = _flux("cancel", id)
            over = done.status and "inactive" in done.err
            answers[id] = "already over" if over else done.first_line if done.status else "ended"
        return answers


def _named(name: str) -> Mapping[str, JobStatus]:
    """Return the statuses of all jobs with this name, keyed by id."""
    done = _flux("jobs", "-a", "-n", f"--name={name}", "-o", "{id.dec}|{status}|{name}")
    if done.status:
        raise UserError(f"flux jobs --name={name}: {done.first_line}")
    return flux_answers.named(done.out, name)


def _flux(*argv: str) -> ProgramResult:
    """Call Flux with ASCII ids, and with FLUX_URI, which selects the instance."""
    environment = {**plain_environment(keep=("FLUX_URI",)), "FLUX_F58_FORCE_ASCII": "1"}
    return ask(["flux", *argv], environment)
