"""The fake bhist, which reports jobs that bjobs no longer lists.

Sources: IBM Spectrum LSF 10.1, Command Reference, bhist; the text of -l follows the documentation of sites.
"""

import time

from fakes.lsf import words
from fakes.lsf.names import select
from fakes.programs import Call, RefusedError, register_program
from fakes.state import ENDED, Config, Job

_STATES = "PEND     PSUSP    RUN      USUSP    SSUSP    UNKWN    TOTAL"


@register_program("bhist")
def bhist(call: Call) -> int:
    """Print the history of jobs."""
    if "-V" in call.argv:
        call.warn(words.VERSION)
        return 0
    config, now = call.store.config, time.time()
    ids, long, skip = [], False, False
    for word in call.argv:
        if skip:
            skip = False
        elif word in ("-n", "-u", "-J", "-q"):
            skip = True
        elif word in ("-l", "-a", "-w", "-d", "-e", "-b"):
            long = long or word == "-l"
        elif word.startswith("-n") and word[2:].isdigit():
            continue
        elif word.startswith("-"):
            raise RefusedError(f"bhist: illegal option -- {word.lstrip('-')}")
        else:
            ids.append(word)
    with call.store.change() as state:
        visible = [job for job in state.jobs if not words.is_lost(job, state)]
        jobs = [job for id in ids for job in select(id, state) if job in visible] if ids else visible
    if not jobs:
        raise RefusedError("No matching job found")
    if long:
        print(f"{'-' * 78}\n".join(_format_long(job, config, now) for job in jobs), end="")
    else:
        print("Summary of time in seconds spent in various states:")
        print("JOBID   USER    JOB_NAME  PEND    PSUSP   RUN     USUSP   SSUSP   UNKWN   TOTAL")
        for job in jobs:
            waited, ran = _sum_spent(job, now)
            name = words.format_name(job)
            name = name if len(name) <= 9 else f"*{name[-8:]}"
            counts = "".join(f"{count:<8}" for count in (waited, 0, ran, 0, 0, 0, waited + ran)).rstrip()
            print(f"{job.id:<7} {config.user:<7.7} {name:<9} {counts}")
    return 0


def _format_long(job: Job, config: Config, now: float) -> str:
    head = f"Job <{job.key}>, Job Name <{words.format_name(job)}>, User <{config.user}>, Project "
    head += f"<{job.account or 'default'}>, Command <{job.script}>"
    lines = [words.break_lines(f"{words.format_long_time(moment)}: {text}") for moment, text in job.events]
    lines[1:1] = [f"\n RUNLIMIT\n {job.limit / 60:.2f} min of launch1\n"] if job.limit else []
    lines.insert(0, words.break_lines(head))
    waited, ran = _sum_spent(job, now)
    until = words.format_long_time(job.ended if job.state in ENDED else now)
    counts = [waited, 0, ran, 0, 0, 0, waited + ran]
    return "\n".join(
        [
            "",
            *lines,
            "",
            f"Summary of time in seconds spent in various states by  {until}",
            f"  {_STATES}",
            "  " + "".join(f"{count:<9}" for count in counts).rstrip(),
            "",
        ]
    )


def _sum_spent(job: Job, now: float) -> tuple[int, int]:
    begun = job.started or (job.ended if job.state in ENDED else now)
    return max(0, round(begun - job.submitted)), words.count_run_seconds(job, now)
