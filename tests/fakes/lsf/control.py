"""The fake bkill, brequeue, bstop and bresume.

Sources: IBM Spectrum LSF 10.1, Command Reference.
"""

import signal
import time

from fakes.lsf import list_end_signals, words
from fakes.lsf.names import is_named, select
from fakes.programs import Call, RefusedError, register_program, take_job_fault
from fakes.signals import signal_number
from fakes.state import (
    ALIVE,
    ENDED,
    EXITED,
    HELD,
    RUNNING,
    STOPPED,
    SYSTEM_STOPPED,
    WAITING,
    Config,
    Job,
    State,
)


@register_program("bkill")
def bkill(call: Call) -> int:
    """End jobs, or send them a signal."""
    return _apply_to_each(call, "-s", ("-r", "-b"))


@register_program("brequeue")
def brequeue(call: Call) -> int:
    """Stop running jobs, and requeue them with the same ids."""
    return _apply_to_each(call, "-J", ("-d", "-e", "-r", "-a", "-p", "-H"))


@register_program("bstop")
def bstop(call: Call) -> int:
    """Suspend jobs."""
    return _apply_to_each(call, "-J", ("-a",))


@register_program("bresume")
def bresume(call: Call) -> int:
    """Resume suspended jobs."""
    return _apply_to_each(call, "-J", ())


def _apply_to_each(call: Call, valued: str, flags: tuple[str, ...]) -> int:
    if "-V" in call.argv:
        call.warn(words.VERSION)
        return 0
    given, ids, left = {}, [], list(call.argv)
    while left:
        word = left.pop(0)
        if word in (valued, "-J", "-u", "-q") and left:
            given[word] = left.pop(0)
        elif word in flags:
            given[word] = ""
        elif word.startswith("-"):
            raise RefusedError(f"{call.program}: illegal option -- {word.lstrip('-')}")
        else:
            ids.append(word)
    if not ids and "-J" not in given:
        raise RefusedError("Job ID must be specified.")
    status = 0
    with call.store.change() as state:
        for id in ids or [given["-J"]]:
            jobs = (
                _select_jobs(id, state)
                if ids
                else [job for job in state.jobs if is_named(id, job) and job.state not in ENDED]
            )
            if not jobs:
                call.warn(f"Job <{id}>: No matching job found")
                status = 255
            for job in jobs:
                good, text = _ACTS[call.program](job, given, state, call.store.config)
                if good:
                    print(f"Job <{job.key}> {text}")
                else:
                    call.warn(f"Job <{job.key}>: {text}")
                    status = 255
    return status


def _select_jobs(id: str, state: State) -> list[Job]:
    if id == "0":
        return [job for job in state.jobs if job.state not in ENDED]
    jobs = [job for job in select(id, state) if not words.is_lost(job, state)]
    alive = [job for job in jobs if job.state not in ENDED]
    return alive or jobs  # ended array elements are skipped unless all have ended


def _kill(job: Job, given: dict[str, str], state: State, config: Config) -> tuple[bool, str]:
    now = time.time()
    if job.state in ENDED:
        return False, "Job has already finished"
    if "-s" in given and given["-s"].upper().removeprefix("SIG") not in ("KILL", "9"):
        return _signal(job, signal_number(given["-s"]), now)
    zombie = take_job_fault(state, job, "zombie")
    if zombie and "-r" not in given:
        return True, "is being terminated"  # and nothing happens
    state.faults = [fault for fault in state.faults if not (zombie and fault is zombie)]
    why = "force" if "-r" in given else "owner"
    if job.state in (WAITING, HELD):
        job.state, job.why, job.ended = EXITED, why, now
        job.say(now, f"Signal <KILL> requested by user or administrator <{config.user}>;")
        term = words.name_term(why, config)
        job.say(now, f"Completed <exit>; {term};" if term else "Exited; job has never been started;")
    elif why == "force" or "-s" in given:
        job.plan = [(now, int(signal.SIGKILL), why)]
    else:
        job.plan = list_end_signals(now, config, why)
    return True, "is being terminated"


def _signal(job: Job, number: int, now: float) -> tuple[bool, str]:
    if job.state not in ALIVE:
        return False, "Job has not started yet"
    job.plan.insert(0, (now, number, ""))
    return True, "is being signaled"


def _put_back(job: Job, given: dict[str, str], state: State, config: Config) -> tuple[bool, str]:
    now = time.time()
    back = WAITING if "-H" not in given else HELD
    if job.state in ENDED:
        if not ({"-d", "-e", "-a"} & set(given)):
            return False, "Job has already finished"
        job.state, job.why, job.submitted = back, "", now
    elif job.state in ALIVE:
        job.plan, job.why = list_end_signals(now, config, "requeue"), "requeue"  # it may end before the first signal
    else:
        return False, "Job has not started yet"
    return True, "is being requeued"


def _stop(job: Job, given: dict[str, str], state: State, config: Config) -> tuple[bool, str]:
    if job.state in ENDED:
        return False, "Job has already finished"
    if job.state in ALIVE:
        job.plan.insert(0, (time.time(), int(signal.SIGSTOP), ""))
        job.state = STOPPED
    else:
        job.state = HELD
    return True, "is being stopped"


def _resume(job: Job, given: dict[str, str], state: State, config: Config) -> tuple[bool, str]:
    if job.state in ENDED:
        return False, "Job has already finished"
    if job.state in (STOPPED, SYSTEM_STOPPED):
        job.plan.insert(0, (time.time(), int(signal.SIGCONT), ""))
        job.state = RUNNING
    elif job.state == HELD:
        job.state = WAITING
    return True, "is being resumed"


_ACTS = {"bkill": _kill, "brequeue": _put_back, "bstop": _stop, "bresume": _resume}
