"""The fake bjobs, which selects jobs and prints them in the requested format.

Sources: IBM Spectrum LSF 10.1, Command Reference, bjobs; the table formats follow the documentation of sites.
"""

import re
import time
from dataclasses import dataclass, field

from fakes.lsf import tables, words
from fakes.lsf.flavours import FLAVOURS
from fakes.lsf.names import is_named, select
from fakes.programs import Call, RefusedError, register_program, take_job_fault
from fakes.state import ALIVE, ENDED, HELD, WAITING, Config, Job, State

_FLAGS = ("-a", "-d", "-l", "-p", "-r", "-s", "-w", "-noheader", "-json", "-UF", "-hms", "-x", "-A", "-sum")
_WITH_VALUE = ("-o", "-J", "-u", "-q", "-P", "-G", "-g", "-m", "-app", "-Jd")


@dataclass
class Wanted:
    """The options of a bjobs call."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)


@register_program("bjobs")
def bjobs(call: Call) -> int:
    """Print the state of jobs."""
    if "-V" in call.argv:
        call.warn(words.VERSION)
        return 0
    config = call.store.config
    wanted = _read(call.argv, config)
    fields = tables.parse_fields(wanted.values["-o"], config) if "-o" in wanted.values else None
    now = time.time()
    with call.store.change() as state:
        jobs, missing = _choose(wanted, state, config, now)
        rows = [(job, words.resolve_stat(job, state)) for job in jobs]
        if fields is not None:
            hidden = {job.key for job in jobs if take_job_fault(state, job, "no_exit_code")}
            table = tables.Table(fields, config, now, hidden, header="-noheader" not in wanted.flags)
            print(table.json(rows, missing) if "-json" in wanted.flags else table.text(rows), end="")
            if "-json" in wanted.flags:
                missing = []
        elif "-l" in wanted.flags:
            print("".join(tables.format_long(job, stat, config, now) for job, stat in rows), end="")
        elif rows and "-p" in wanted.flags:
            print(tables.format_pending(rows, config), end="")
        elif rows:
            form = tables.format_wide if "-w" in wanted.flags else tables.format_short
            print(form(rows, config, header="-noheader" not in wanted.flags), end="")
    for id in missing:
        call.warn(f"Job <{id}> is not found")
    if missing:
        return 255
    if not rows and not wanted.ids and "-json" not in wanted.flags:
        return _report_nothing(call, wanted, config)
    return 0


def _read(argv: list[str], config: Config) -> Wanted:
    flavour = FLAVOURS[config.flavour]
    wanted, words_left = Wanted(), list(argv)
    while words_left:
        word = words_left.pop(0)
        if not word.startswith("-"):
            wanted.ids.append(word)
        elif (word == "-json" and not flavour.json) or (word.startswith("-o") and not flavour.fields):
            raise RefusedError(f"bjobs: illegal option -- {word.lstrip('-')}\n{_USAGE}")
        elif word in _FLAGS:
            wanted.flags.add(word)
        elif word in _WITH_VALUE and words_left:
            wanted.values[word] = words_left.pop(0)
        elif re.fullmatch(r"-[adlprsw]{2,}", word):
            wanted.flags |= {f"-{letter}" for letter in word[1:]}
        else:
            raise RefusedError(f"bjobs: illegal option -- {word.lstrip('-')}\n{_USAGE}")
    if "-json" in wanted.flags and "-noheader" in wanted.flags:
        raise RefusedError("Option -json cannot be used with -noheader.")
    return wanted


_USAGE = "Usage: bjobs [-a] [-l] [-w] [-noheader] [-J job_name] [-u user] [-q queue] [job_ID ...]"


def _choose(wanted: Wanted, state: State, config: Config, now: float) -> tuple[list[Job], list[str]]:
    """Return the selected jobs, and the unknown ids."""
    visible = [job for job in state.jobs if words.is_listed(job, config, state, now)]
    missing: list[str] = []
    if wanted.ids:
        jobs: list[Job] = []
        for id in wanted.ids:
            selected = [job for job in select(id, state) if job in visible]
            jobs += selected
            if not selected:
                missing.append(id)
    else:
        jobs = visible
    if "-J" in wanted.values:
        jobs = [job for job in jobs if is_named(wanted.values["-J"], job)]
        if not jobs and not wanted.ids:
            raise RefusedError(f"Job <{wanted.values['-J']}> is not found")
    if "-q" in wanted.values:
        jobs = [job for job in jobs if job.queue == wanted.values["-q"]]
    states: set[str] = set()
    states |= set(ALIVE) if "-r" in wanted.flags else set()
    states |= {WAITING, HELD} if "-p" in wanted.flags else set()
    states |= set(ENDED) if "-d" in wanted.flags else set()
    if not states and not wanted.ids and "-a" not in wanted.flags:
        states = {*ALIVE, WAITING, HELD}
    return [job for job in jobs if not states or job.state in states or "-a" in wanted.flags], missing


def _report_nothing(call: Call, wanted: Wanted, config: Config) -> int:
    if config.flavour == "lsf-like":
        call.warn("No running job found")
        return 254
    call.warn("No job found" if "-a" in wanted.flags else "No unfinished job found")
    return 255 if "-a" in wanted.flags else 0
