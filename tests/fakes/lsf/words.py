"""LSF's terms for jobs: states, times, hosts and reasons."""

import time

from fakes.lsf.flavours import FLAVOURS
from fakes.programs import take_job_fault
from fakes.state import (
    ALIVE,
    DONE,
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

VERSION = "hpcbench's fake of LSF, which runs jobs on this machine; it is not IBM Spectrum LSF 10.1"
STAT = {
    HELD: "PSUSP",
    WAITING: "PEND",
    RUNNING: "RUN",
    STOPPED: "USUSP",
    SYSTEM_STOPPED: "SSUSP",
    DONE: "DONE",
    EXITED: "EXIT",
}
TERM = {
    "owner": "TERM_OWNER: job killed by owner",
    "force": "TERM_FORCE_OWNER: job killed by owner without time for cleanup",
    "limit": "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
    "requeue": "TERM_REQUEUE_OWNER: job killed and requeued by owner",
    "preempt": "TERM_PREEMPT: job killed after preemption",
    "host": "TERM_ZOMBIE: job exited while LSF is not available",
    "orphan": "TERM_ORPHAN_SYSTEM: The orphan job was automatically terminated by LSF",
    "memory": "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit",
    "signal": "TERM_EXTERNAL_SIGNAL: job killed by a signal external to LSF",
}
PENDING = "New job is waiting for scheduling;"
NOT_YET = "Job dependency condition not satisfied;"
NEVER = "Dependency condition invalid or never satisfied;"


def resolve_stat(job: Job, state: State) -> str:
    """Return LSF's term for the job's state, or the term that a fault requests."""
    fault = take_job_fault(state, job, "state")
    return str(fault["word"]) if fault else STAT[job.state]


def is_listed(job: Job, config: Config, state: State, now: float) -> bool:
    """Return whether bjobs still lists the job."""
    old = job.state in ENDED and now - job.ended > config.clean_period
    return not old and not take_job_fault(state, job, "clean") and not is_lost(job, state)


def is_lost(job: Job, state: State) -> bool:
    """Return whether no program finds the job any more."""
    return take_job_fault(state, job, "lose") is not None


def describe_end(job: Job) -> str:
    """Return the reason for the job's end, such as ``TERM_RUNLIMIT: ...``, or an empty text."""
    return TERM.get(job.why, "") if job.state == EXITED else ""


def name_term(why: str, config: Config) -> str:
    """Return the short form of the reason, as in the job's history and report.

    Not every variant of LSF prints a reason.
    """
    return TERM.get(why, "") if FLAVOURS[config.flavour].reasons else ""


def format_name(job: Job) -> str:
    """Return the name that bjobs displays. The name of an array element includes its index."""
    name = job.name or "/bin/bash"
    return f"{name}[{job.index}]" if job.index else name


def list_hosts(job: Job, config: Config) -> list[tuple[str, int]]:
    """Return hosts with slots, beginning with the launch host, if any."""
    places = list(job.places.items())
    return [("launch1", 1), *places] if places and config.flavour == "csm" else places


def format_hosts(job: Job, config: Config, separator: str = ":") -> str:
    """Return hosts in the form ``launch1:40*node1:40*node2``. A host with one slot is written without a number."""
    parts = [f"{slots}*{host}" if slots > 1 else host for host, slots in list_hosts(job, config)]
    return separator.join(parts)


def format_short_time(moment: float) -> str:
    """Format a time as ``Nov 3 06:30``, or return an empty text if the time is None."""
    return time.strftime("%b %e %H:%M", time.localtime(moment)) if moment else ""


def format_long_time(moment: float) -> str:
    """Format a time as ``Tue Nov  3 06:30:00``."""
    return time.strftime("%a %b %e %H:%M:%S", time.localtime(moment))


def count_run_seconds(job: Job, now: float) -> int:
    """Return the elapsed time of the job's current run in seconds."""
    return round((job.ended if job.state in ENDED else now) - job.started) if job.started else 0


def is_alive(job: Job) -> bool:
    """Return whether the job is running processes."""
    return job.state in ALIVE


def break_lines(text: str) -> str:
    """Return text wrapped as in bjobs -l and bhist -l: after 80 characters, even in the middle of words."""
    lines, remainder = [text[:80]], text[80:]
    while remainder:
        lines.append(" " * 21 + remainder[:59])
        remainder = remainder[59:]
    return "\n".join(lines)
