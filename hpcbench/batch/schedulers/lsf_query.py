"""LSF job queries with bjobs, and with bhist for jobs that bjobs no longer lists.

Some LSF variants support fewer options and fields. Refused fields are dropped. If LSF still refuses the query, the wide
table is requested, and then the plain table.
"""

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import ProgramResult, SilenceError, ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus, list_jobs
from hpcbench.batch.schedulers.lsf_answers import (
    FIELDS,
    lookup,
    read_delimited,
    read_history,
    read_pending,
    read_table,
    waiting,
)
from hpcbench.contract.state import State
from hpcbench.errors import UserError

HANGS = re.compile(r"^.*still trying.*$", re.MULTILINE)
"""Message that LSF commands print when the daemon hangs.

The commands retry forever, and bsub resends the job each time.
"""
_NOT_FOUND = re.compile(r"^(Job <[^>]*> is not found|No (\w+ )?job found.*|No matching job found.*)\s*$", re.MULTILINE)


_FEW = ("jobid", "jobindex", "stat", "job_name")
"""Fields of the fallback query, used if LSF refuses fields without naming them."""


class LsfQuery:
    """LSF job queries that do not repeat options and fields that LSF has refused.

    Each method raises a `UserError` if LSF does not respond.
    """

    def __init__(self) -> None:
        self._fields: tuple[str, ...] = FIELDS
        self._forms: tuple[str, ...] = ("fields", "wide", "plain")
        self._history = True
        self._asks_reasons = True

    def read_statuses(self, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the statuses of these ids. Ids that LSF does not list are omitted."""
        wanted = list(dict.fromkeys(ids))
        statuses = self.listed(wanted)
        has_reasons = "exit_reason" in self._fields and self._forms[0] == "fields"
        bare = [job for job in wanted if job in statuses and not has_reasons and statuses[job].reason == "EXIT"]
        missing = [job for job in wanted if job not in statuses]
        for job, word in self._past(missing + bare).items():
            if job in missing:
                statuses[job] = word
            elif not word.state.alive and word.state is not State.UNKNOWN:
                statuses[job] = replace(word, hosts=word.hosts or statuses[job].hosts)
        return statuses

    def listed(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the statuses of these ids as listed by bjobs, which keeps ended jobs for about an hour."""
        statuses: dict[str, JobStatus] = {}
        for some in portions(list_jobs(ids)):
            statuses.update(self._with_reasons(self._bjobs(some)))
        return {job: word for job in ids if (word := lookup(statuses, job)) is not None}

    def named(self, name: str) -> dict[str, JobStatus]:
        """Return the statuses of all listed jobs with this name, keyed by element id."""
        return self._bjobs(["-J", name])

    def _bjobs(self, which: Sequence[str]) -> dict[str, JobStatus]:
        while True:
            form = self._forms[0]
            answer = ask(["bjobs", "-a", *self._options(form), *which], plain_environment(), hangs=HANGS)
            fields = form == "fields"
            statuses = read_delimited(answer.out, _now()) if fields else read_table(answer.out, wide=form == "wide")
            if _answered(answer):
                return statuses  # Parse regardless of the exit status, because LSF fails if any job is unknown.
            spared = [field for field in self._fields if field not in ("jobid", "stat")]
            unknown = [field for field in spared if re.search(rf"\b{field}\b", answer.output, re.IGNORECASE)]
            few = tuple(field for field in self._fields if field in _FEW)
            if fields and unknown:
                self._fields = tuple(field for field in self._fields if field not in unknown)
            elif fields and few != self._fields and _reached(answer):
                self._fields = few
            elif len(self._forms) > 1 and _reached(answer):
                self._forms = self._forms[1:]
            else:
                raise UserError(f"bjobs: {answer.first_line}: LSF cannot be queried at the moment")

    def _with_reasons(self, statuses: dict[str, JobStatus]) -> dict[str, JobStatus]:
        """Add the pending reason of each waiting job. Call `bjobs -p` if the first query did not return the reasons."""
        waits = [job for job, status in statuses.items() if status.state is State.PENDING and not status.reason]
        if not waits or not self._asks_reasons or (self._forms[0] == "fields" and "pend_reason" in self._fields):
            return statuses
        answer = ask(["bjobs", "-p", *list_jobs(waits)], plain_environment(), hangs=HANGS)
        self._asks_reasons = not re.search("illegal option|[Uu]sage", answer.output)
        why = read_pending(answer.out)
        return {**statuses, **{job: waiting(why[job]) for job in waits if job in why}}

    def _options(self, form: str) -> list[str]:
        if form == "fields":
            return ["-o", " ".join(self._fields) + " delimiter='^'"]
        return ["-w"] if form == "wide" else []

    def _past(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the statuses from LSF's event logs. Reading the logs may be slow, and some sites forbid it."""
        statuses: dict[str, JobStatus] = {}
        for some in portions(list_jobs(ids)) if self._history else ():
            try:
                answer = ask(["bhist", "-l", "-n", "0", *some], plain_environment(), hangs=HANGS)
            except SilenceError:
                break
            except UserError:
                self._history = False
                break
            statuses.update(read_history(answer.out, _now()))
        return {job: statuses[job] for job in ids if job in statuses}


def _answered(answer: ProgramResult) -> bool:
    """Return whether the output lists jobs, or states that no jobs exist."""
    spoke = _NOT_FOUND.search(answer.output) or re.search(r"^\s*JOBID\b", answer.out, re.MULTILINE)
    return bool(spoke) or (answer.status == 0 and not answer.err.strip())


def _reached(answer: ProgramResult) -> bool:
    """Return whether LSF was reached. If LSF was reached, a failed call means that LSF refused the query."""
    away = "is down|[Cc]annot connect|not responding|[Tt]ry later|[Cc]onnection refused|library call"
    return re.search(away, answer.output) is None


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
