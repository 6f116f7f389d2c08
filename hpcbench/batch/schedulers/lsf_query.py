"""Asking LSF about jobs: bjobs, and bhist about those that bjobs no longer lists.

LSF has relatives that know fewer options and fields. What is refused is not asked again: a field is dropped, then all
fields for the wide table, then that for the plain one.
"""

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import Answer, SilenceError, ask, portions
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf_answers import (
    FIELDS,
    Clock,
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
"""What LSF's programs say when the daemon hangs. They try for ever, and bsub sends the job each time."""
_NOT_FOUND = re.compile(r"^(Job <[^>]*> is not found|No (\w+ )?job found.*|No matching job found.*)\s*$", re.MULTILINE)


_FEW = ("jobid", "jobindex", "stat", "job_name")
"""Fields that are asked for where LSF refuses others, and does not say which."""


class LsfQuery:
    """Asks, and remembers what this LSF does not know."""

    def __init__(self) -> None:
        self._fields: tuple[str, ...] = FIELDS
        self._forms: tuple[str, ...] = ("fields", "wide", "plain")
        self._history = True
        self._asks_reasons = True

    def words(self, ids: Iterable[str]) -> dict[str, JobStatus]:
        """LSF's words of these ids; those that it does not know are left out.

        Raises
        ------
        UserError
            LSF does not answer.
        """
        wanted = list(dict.fromkeys(ids))
        found = self.listed(wanted)
        told = "exit_reason" in self._fields and self._forms[0] == "fields"
        bare = [job for job in wanted if job in found and not told and found[job].reason == "EXIT"]
        missing = [job for job in wanted if job not in found]
        for job, word in self._past(missing + bare).items():
            if job in missing:
                found[job] = word
            elif not word.state.alive and word.state is not State.UNKNOWN:
                found[job] = replace(word, hosts=word.hosts or found[job].hosts)
        return found

    def listed(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """What bjobs alone says of these ids; it keeps what is over for an hour or so.

        Raises
        ------
        UserError
            LSF does not answer.
        """
        found: dict[str, JobStatus] = {}
        for some in portions(_jobs(ids)):
            found.update(self._with_reasons(self._bjobs(some)))
        return {job: word for job in ids if (word := lookup(found, job)) is not None}

    def named(self, name: str) -> dict[str, JobStatus]:
        """How all stands that was handed in under this name and is still listed, by ids, of elements too.

        Raises
        ------
        UserError
            LSF does not answer.
        """
        return self._bjobs(["-J", name])

    def _bjobs(self, which: Sequence[str]) -> dict[str, JobStatus]:
        while True:
            form = self._forms[0]
            answer = ask(["bjobs", "-a", *self._options(form), *which], plain_environment(), hangs=HANGS)
            fields = form == "fields"
            found = read_delimited(answer.out, _clock()) if fields else read_table(answer.out, wide=form == "wide")
            if _answered(answer):
                return found  # whatever the status: LSF fails where one of many is unknown
            spared = [field for field in self._fields if field not in ("jobid", "stat")]
            unknown = [field for field in spared if re.search(rf"\b{field}\b", answer.said, re.IGNORECASE)]
            few = tuple(field for field in self._fields if field in _FEW)
            if fields and unknown:
                self._fields = tuple(field for field in self._fields if field not in unknown)
            elif fields and few != self._fields and _reached(answer):
                self._fields = few
            elif len(self._forms) > 1 and _reached(answer):
                self._forms = self._forms[1:]
            else:
                raise UserError(f"bjobs: {answer.first_line}: LSF cannot be asked at the moment")

    def _with_reasons(self, words: dict[str, JobStatus]) -> dict[str, JobStatus]:
        """The same with why jobs wait: where no field tells that, another call does."""
        waits = [job for job, said in words.items() if said.state is State.PENDING and not said.reason]
        if not waits or not self._asks_reasons or (self._forms[0] == "fields" and "pend_reason" in self._fields):
            return words
        answer = ask(["bjobs", "-p", *_jobs(waits)], plain_environment(), hangs=HANGS)
        self._asks_reasons = not re.search("illegal option|[Uu]sage", answer.said)
        why = read_pending(answer.out)
        return {**words, **{job: waiting(why[job]) for job in waits if job in why}}

    def _options(self, form: str) -> list[str]:
        if form == "fields":
            return ["-o", " ".join(self._fields) + " delimiter='^'"]
        return ["-w"] if form == "wide" else []

    def _past(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """What LSF's event logs say; reading all of them may take long, and a site may not offer it."""
        found: dict[str, JobStatus] = {}
        for some in portions(_jobs(ids)) if self._history else ():
            try:
                answer = ask(["bhist", "-l", "-n", "0", *some], plain_environment(), hangs=HANGS)
            except SilenceError:
                break
            except UserError:
                self._history = False
                break
            found.update(read_history(answer.out, _clock()))
        return {job: found[job] for job in ids if job in found}


def _answered(answer: Answer) -> bool:
    """Whether it spoke of jobs, if only to say that there are none."""
    spoke = _NOT_FOUND.search(answer.said) or re.search(r"^\s*JOBID\b", answer.out, re.MULTILINE)
    return bool(spoke) or (answer.status == 0 and not answer.err.strip())


def _reached(answer: Answer) -> bool:
    """Whether it was LSF that refused, and not LSF that is away."""
    away = "is down|[Cc]annot connect|not responding|[Tt]ry later|[Cc]onnection refused|library call"
    return re.search(away, answer.said) is None


def _clock() -> Clock:
    return Clock(datetime.datetime.now(datetime.timezone.utc))


def _jobs(ids: Sequence[str]) -> list[str]:
    """The jobs to which these elements belong, each once."""
    return list(dict.fromkeys(job.partition("[")[0] for job in ids))
