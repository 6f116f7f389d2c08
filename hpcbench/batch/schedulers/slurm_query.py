"""Slurm job queries with squeue, and with sacct for jobs that have ended or are no longer listed."""

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcbench.batch.files import seconds
from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import ProgramResult, ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus, list_jobs
from hpcbench.batch.schedulers.slurm_answers import (
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    merged,
    read_sacct,
    read_squeue,
    read_squeue_short,
    read_states,
)
from hpcbench.errors import UserError
from hpcbench.files import read_json

_MONTH = datetime.timedelta(days=30)

_UNKNOWN_ID = re.compile("Invalid job id specified")
_NO_ACCOUNTING = re.compile("accounting storage is disabled", re.IGNORECASE)
_BAD_FIELD = re.compile(r'Invalid field requested: "(\w+)"')


class SlurmQuery:
    """Slurm job queries that do not repeat options that Slurm has refused.

    Each method raises a `UserError` if the controller does not respond.

    Parameters
    ----------
    since
        Earliest time of the requested jobs. It is needed because Slurm reuses ids.
    """

    def __init__(self, since: datetime.datetime | None = None) -> None:
        start = since or datetime.datetime.now(datetime.timezone.utc) - _MONTH
        self._start = start.strftime("%Y-%m-%dT%H:%M:%S")
        self._accounting = True
        self._long = True
        self._fields: tuple[str, ...] = SACCT_FIELDS

    def read_statuses(self, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the statuses of these ids. Ids that Slurm does not list are omitted."""
        wanted = list(dict.fromkeys(ids))
        listed = self.listed(wanted)
        over = [job for job in wanted if job not in listed or not listed[job].state.alive]
        accounted = self._accounted(over)
        for job in over:
            word = accounted.get(job)
            if word is not None and job in listed:
                listed[job] = merged(listed[job], word)
            elif word is not None and not word.state.alive:  # live states in accounting may be outdated
                listed[job] = word
        return {job: listed[job] for job in wanted if job in listed}

    def listed(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the statuses of these ids as listed by squeue, which keeps ended jobs for a few minutes."""
        statuses: dict[str, JobStatus] = {}
        for some in portions(list_jobs(ids)):
            statuses.update(self._squeue(["--jobs", ",".join(some)]))
        return {job: statuses[job] for job in ids if job in statuses}

    def named(self, *names: str) -> dict[str, JobStatus]:
        """Return the statuses of all jobs with these names, keyed by element id."""
        argv = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%i|%T"]
        answer = ask(argv, _environment())
        if answer.status:
            raise UserError(f"squeue: {answer.first_line}")
        accounted = self._sacct([f"--name={','.join(names)}", "--allocations"], ("JobID", "State"))
        return {**read_states(accounted.out if accounted else ""), **read_states(answer.out)}

    def _squeue(self, which: list[str]) -> dict[str, JobStatus]:
        argv = ["squeue", "--noheader", "--array", "--states=all", *which]
        if self._long:
            form = "--Format=" + ",".join(f"{name}:|" for name in SQUEUE_FIELDS[:-1]) + f",{SQUEUE_FIELDS[-1]}:"
            answer = ask([*argv, form], _environment())
            if not re.search(r"Invalid job format|[Uu]nrecognized|[Ii]nvalid (option|field)", answer.err):
                return {} if _checked(answer) is None else read_squeue(answer.out)
            self._long = False  # old Slurm version
        answer = ask([*argv, "--format=%i|%T|%N|%r"], _environment())
        return {} if _checked(answer) is None else read_squeue_short(answer.out)

    def _accounted(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        statuses: dict[str, JobStatus] = {}
        for some in portions(list_jobs(ids)):
            answer = self._sacct(["--jobs", ",".join(some)], self._fields)
            bad = _BAD_FIELD.search(answer.err) if answer else None
            if bad and bad[1] in self._fields[2:]:
                self._fields = tuple(field for field in self._fields if field != bad[1])
                answer = self._sacct(["--jobs", ",".join(some)], self._fields)
            if answer:
                statuses.update(read_sacct(answer.out, self._fields))
        return statuses

    def _sacct(self, which: list[str], fields: Sequence[str]) -> ProgramResult | None:
        """Call sacct. Return None if accounting is off or its database does not respond, as accounting is optional."""
        if not self._accounting:
            return None
        argv = ["sacct", "--noheader", "--parsable2", f"--starttime={self._start}", *which]
        try:
            answer = ask([*argv, "--format=" + ",".join(fields)], _environment())
        except UserError:
            return None
        if _NO_ACCOUNTING.search(answer.output):
            self._accounting = False
            return None
        return answer


def _checked(answer: ProgramResult) -> ProgramResult | None:
    """Return the result of a successful call, or None if the call failed because the queried id is unknown."""
    if answer.status == 0:
        return answer
    if _UNKNOWN_ID.search(answer.output):
        return None
    raise UserError(f"squeue: {answer.first_line}: Slurm cannot be queried at the moment")


def _environment() -> dict[str, str]:
    """Return an environment with a fixed time format and unabbreviated lists of array elements."""
    return {**plain_environment(), "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}


def since(root: Path) -> datetime.datetime | None:
    """Return the time of the submission minus one day, in case the machines' clocks differ.

    Return None if the time is not recorded.

    File times are unreliable. Copying a file changes the time, and users touch files to avoid purges.
    """
    written = seconds((read_json(root / "submission.json") or {}).get("time"))
    if written is None:
        return None
    return datetime.datetime.fromtimestamp(written, datetime.timezone.utc) - datetime.timedelta(days=1)
