"""Parsers for the output of LSF's bjobs and bhist."""

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State
from hpcbench.contract.times import measure_seconds

STATES: Mapping[str, State] = {
    "PEND": State.PENDING,
    "WAIT": State.PENDING,
    "PROV": State.PENDING,
    "PSUSP": State.PENDING,
    "RUN": State.RUNNING,
    "USUSP": State.SUSPENDED,
    "SSUSP": State.SUSPENDED,
    "UNKWN": State.UNKNOWN,
    "ZOMBI": State.LOST,
    "DONE": State.COMPLETED,
    "EXIT": State.FAILED,
}
"""LSF job states. For EXIT, the termination reason determines the exact state."""

_NEVER = re.compile("never satisfied")
_NOTES = {
    "PSUSP": "held while pending",
    "UNKWN": "its host does not answer",
    "ZOMBI": "the job was cancelled, but its host does not answer: remove the job with `bkill -r`",
}

TERMINATIONS: Mapping[str, State] = {
    "TERM_RUNLIMIT": State.TIMED_OUT,
    "TERM_DEADLINE": State.TIMED_OUT,
    "TERM_CPULIMIT": State.TIMED_OUT,
    "TERM_WINDOW": State.TIMED_OUT,
    "TERM_OWNER": State.CANCELLED,
    "TERM_ADMIN": State.CANCELLED,
    "TERM_FORCE_OWNER": State.CANCELLED,
    "TERM_FORCE_ADMIN": State.CANCELLED,
    "TERM_BUCKET_KILL": State.CANCELLED,
    "TERM_ORPHAN_SYSTEM": State.CANCELLED,
    "TERM_MEMLIMIT": State.OUT_OF_MEMORY,
    "TERM_SWAP": State.OUT_OF_MEMORY,
    "TERM_ZOMBIE": State.NODE_FAILED,
    "TERM_CSM_ALLOC": State.NODE_FAILED,  # IBM's job step manager could not set up or hold the nodes
    "TERM_PREEMPT": State.PREEMPTED,
    "TERM_REQUEUE_OWNER": State.PREEMPTED,
    "TERM_REQUEUE_ADMIN": State.PREEMPTED,
    "TERM_RC_RECLAIM": State.PREEMPTED,
}
"""State for each termination reason in LSF.

The reason takes precedence over the exit status, which may be empty or come from the program.
"""

AT_RUN_LIMIT = 140
"""Exit status after SIGUSR2, which LSF sends at the run limit."""
AT_LIMIT = f"exit {AT_RUN_LIMIT}: LSF's run limit"
_LIMIT_SLACK = 5.0
"""Tolerance in seconds.

A job that ends less than this time before its run limit is assumed to have been ended by the limit.
"""
BY_BKILL = 130
"""Exit status after SIGINT, the first signal of bkill."""

FIELDS = (
    *("jobid", "jobindex", "stat", "exit_code", "submit_time", "start_time", "finish_time", "run_time", "max_mem"),
    *("exec_host", "job_name", "exit_reason", "pend_reason"),
)
"""Fields of `bjobs -o`. Fields that may contain free text come last."""

_SHOWN = 7
"""Number of id digits that bjobs prints by default. Leading digits of longer ids are cut off."""


def read_time(cell: str, now: datetime.datetime) -> str | None:
    """Return the most recent time that matches ``Nov 21 06:30`` or ``Fri Nov 21 06:30:05``, in UTC.

    LSF prints no year. A letter after the time, which says what kind of time is meant, is ignored.
    """
    match = re.match(r"(?:[A-Z][a-z]{2} +)?([A-Z][a-z]{2} +\d{1,2} +\d\d:\d\d)(:\d\d)?(?: +(\d{4}))?\b", cell.strip())
    if match is None:
        return None
    for year in (match[3],) if match[3] else (now.year, now.year - 1):
        text = " ".join(f"{year} {match[1]}{match[2] or ':00'}".split())
        try:
            time = datetime.datetime.strptime(f"{text} +0000", "%Y %b %d %H:%M:%S %z")
        except ValueError:
            continue  # 29 February in a non-leap year
        if match[3] or time < now + datetime.timedelta(days=1):
            return time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def word(stat: str, exit: int | None = None, reason: str = "") -> JobStatus:
    """Return the status for an LSF state, in upper or lower case."""
    theirs = stat.strip().upper()
    state = STATES.get(theirs, State.UNKNOWN)
    if theirs == "PEND":
        return waiting(reason)
    if theirs != "EXIT":
        head = "" if theirs in ("RUN", "DONE") else theirs
        detail = ": ".join(part for part in (head, _NOTES.get(theirs, ""), reason) if part)
        return JobStatus(state, reason=detail, exit=0 if state is State.COMPLETED else None)
    term = re.search(r"TERM_[A-Z_]+", reason)
    if term:
        state = TERMINATIONS.get(term[0], State.FAILED)
    elif exit == AT_RUN_LIMIT:
        state, reason = State.TIMED_OUT, reason or AT_LIMIT
    elif exit == BY_BKILL:
        state = State.CANCELLED
    return JobStatus(state, reason=reason or "EXIT", exit=exit or None)


def waiting(reason: str) -> JobStatus:
    """Return the status of a pending job, with a remedy if the job would wait forever."""
    return JobStatus(
        State.PENDING, reason=f"{reason} cancel the job with `hpcbench cancel`" if _NEVER.search(reason) else reason
    )


def read_delimited(text: str, now: datetime.datetime) -> dict[str, JobStatus]:
    """Parse the output of ``bjobs -o "... delimiter='^'"``. Banner lines before the header are skipped."""
    statuses: dict[str, JobStatus] = {}
    names: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("^", max(len(names) - 1, -1) if names else -1)]
        if "JOBID" in cells and "STAT" in cells:
            names = [cell.lower() for cell in cells]
        elif names and len(cells) == len(names):
            row = {name: "" if cell == "-" else cell for name, cell in zip(names, cells, strict=True)}
            number = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", row["jobid"])
            if number is not None:
                index = number[2] or row.get("jobindex", "") or _index(row.get("job_name", ""))
                statuses[element(number[1], index)] = _row_word(row, now)
    return statuses


def _row_word(row: Mapping[str, str], now: datetime.datetime) -> JobStatus:
    stat = row["stat"]
    state = STATES.get(stat.upper(), State.UNKNOWN)
    begun = state is not State.PENDING
    over = not state.alive and state not in (State.UNKNOWN, State.LOST)
    detail = row.get("exit_reason", "") if over else row.get("pend_reason", "") if not begun else ""
    figures = {name: row.get(name, "") for name in ("run_time", "max_mem")}
    figures["submit_time"] = read_time(row.get("submit_time", ""), now) or ""
    exit_status = int(row["exit_code"]) if row.get("exit_code", "").isdigit() else None
    return replace(
        word(stat, exit_status, detail),
        start=read_time(row.get("start_time", ""), now) if begun else None,
        end=read_time(row.get("finish_time", ""), now) if over else None,
        hosts=row.get("exec_host", ""),
        accounting={name: value for name, value in figures.items() if value},
    )


def read_table(text: str, *, wide: bool = False) -> dict[str, JobStatus]:
    """Parse the output of ``bjobs`` or ``bjobs -w``. Hosts may continue on separate lines."""
    statuses: dict[str, JobStatus] = {}
    header, last = "", ""
    for line in text.splitlines():
        if re.match(r"\s*JOBID\b.*\bSTAT\b", line):
            header, last = line, ""
            continue
        row = re.match(r"\*?(\d+)(?:\[(\d+)\])?\s+(\S+)\s+([A-Za-z]+)\s", line)
        if header and row:
            last = element(row[1], row[2] or _index(line[row.end() :]))
            statuses[last] = replace(word(row[4]), hosts=_host(header, line, wide))
        elif last and line[:1].isspace() and len(line.split()) == 1:
            statuses[last] = replace(statuses[last], hosts=f"{statuses[last].hosts}:{line.strip()}")
        elif line.strip():
            last = ""
    return statuses


def read_pending(text: str) -> dict[str, str]:
    """Return the pending reasons in the output of ``bjobs -p``: the lines below each job's row."""
    reasons: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        row = re.match(r"\*?(\d+)(?:\[(\d+)\])?\s+(\S+)\s+P(END|SUSP)\s", line)
        if row:
            last = element(row[1], row[2] or _index(line[row.end() :]))
        elif last and line[:1].isspace() and line.strip():
            reasons[last] = " ".join(part for part in (reasons.get(last, ""), line.strip()) if part)
    return reasons


def _host(header: str, line: str, wide: bool) -> str:
    """Return the EXEC_HOST cell. In the wide format, cells may be shifted to the right, but no cell is empty."""
    cells = line.split()[5:6] if wide else line[header.find("EXEC_HOST") :].split(" ")[:1]
    return "" if cells == ["-"] else "".join(cells)


def element(job: str, index: str) -> str:
    """Return ``123[4]`` for an array element, or ``123`` for a single job."""
    return f"{job}[{index}]" if index not in ("", "0", "-") else job


def _index(text: str) -> str:
    """Return the array index at the end of a job name. bjobs may cut off the beginning: ``*ame[4]``."""
    match = re.search(r"\S\[(\d+)\](?=\s|$)", text)
    return match[1] if match else ""


def lookup(statuses: Mapping[str, JobStatus], job: str) -> JobStatus | None:
    """Return the status of the job with this id, even if bjobs has cut off the leading digits of the id."""
    number, bracket, index = job.partition("[")
    return statuses.get(job) or (statuses.get(number[-_SHOWN:] + bracket + index) if len(number) > _SHOWN else None)


def read_history(text: str, now: datetime.datetime) -> dict[str, JobStatus]:
    """Parse the output of ``bhist -l``. Return the status of each job after its last event."""
    statuses: dict[str, JobStatus] = {}
    for section in re.split(r"^(?=Job <\d+)", text, flags=re.MULTILINE):
        head = re.match(r"Job <(\d+)(?:\[(\d+)\])?>", section)
        if head is not None:
            status = _history(section, now)
            if status is not None:
                statuses[element(head[1], head[2] or "")] = status
    return statuses


def _history(section: str, now: datetime.datetime) -> JobStatus | None:
    stat, reason, hosts, asked = "", "", "", ""
    exit_status: int | None = None
    start: str | None = None
    end: str | None = None
    restarts = 0
    for time, event in _events(section, now):
        if event.startswith("Submittedfrom"):
            stat = "PEND"
        elif re.match(r"(\[\d+\])?(Dispatched|[Ss]tartedon)", event):
            stat, start = "RUN", time
            named = re.search(
                r"(?:Host\(s\)|(?:[Ss]tartedon|Dispatchedto)(?:\d+Hosts?/Processors?)?)((?:<[^>]+>)+)", event
            )
            hosts = ":".join(re.findall(r"<([^>]+)>", named[1])) if named else hosts
        elif event.startswith(("Starting", "Running", "Resumed")):
            stat, start = "RUN", start or time
        elif "requeued" in event[:40].lower() or event.startswith("Pending"):
            restarts += "requeued" in event.lower()
            stat, start, exit_status, reason, asked = "PEND", None, None, "", ""
        elif event.startswith("Suspended"):
            stat = "PSUSP" if start is None else "USUSP" if "byuser" in event.lower() else "SSUSP"
        elif event.startswith("Unknown"):
            stat = "UNKWN"
        elif event.startswith("Donesuccessfully"):
            stat, end = "DONE", time
        elif event.startswith(("Exited", "Completed<exit>")):
            code = re.search(r"exitcode(\d+)", event)
            signal = re.search(r"Exitedbysignal(\d+)", event)
            stat, end = "EXIT", time
            exit_status = int(code[1]) if code else 128 + int(signal[1]) if signal else exit_status
        killed = re.match(r"Signal<(?:SIG)?(KILL|TERM|INT)>requestedby(?:user|administrator)", event)
        asked = f"Signal <{killed[1]}> requested by user" if killed else asked
        term = re.search(r"TERM_[A-Z_]+", event)
        if term and stat == "EXIT":
            reason = term[0]
    if not stat:
        return None
    over = stat in ("DONE", "EXIT")
    status = word(stat, exit_status, reason)
    if stat == "EXIT" and not reason:  # Some LSF variants report no reason, and end jobs at the limit like bkill.
        if asked:
            status = replace(status, state=State.CANCELLED, reason=asked)
        elif _at_limit(section, start, end):
            status = replace(status, state=State.TIMED_OUT, reason=status.reason.replace("EXIT", "LSF's run limit"))
    return replace(status, start=start, end=end if over else None, hosts=hosts, restarts=restarts)


def _at_limit(section: str, start: str | None, end: str | None) -> bool:
    """Return whether a job ran until the run limit stated in its section of the bhist output."""
    limit = re.search(r"^\s*RUNLIMIT\s+(\d+(?:\.\d+)?) min", section, re.MULTILINE)
    ran = measure_seconds(start, end)
    return limit is not None and ran is not None and ran >= 60 * float(limit[1]) - _LIMIT_SLACK


def _events(section: str, now: datetime.datetime) -> Iterator[tuple[str | None, str]]:
    """Yield the time and text of each event. Blanks are removed, because LSF breaks lines even within words."""
    stamp = re.compile(r"^([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?): ?", re.MULTILINE)
    body = re.split(r"^Summary of time", section, flags=re.MULTILINE)[0]
    pieces = stamp.split(body)
    for time, text in zip(pieces[1::2], pieces[2::2], strict=True):
        yield read_time(time, now), re.sub(r"\s+", "", text)
