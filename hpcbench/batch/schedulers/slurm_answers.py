"""Parsers for the output of Slurm's squeue and sacct."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpcbench.batch.schedulers.cluster import parse_bytes
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State

STATES: Mapping[str, State] = {
    "PENDING": State.PENDING,
    "CONFIGURING": State.PENDING,
    "POWER_UP_NODE": State.PENDING,
    "REQUEUED": State.PENDING,
    "REQUEUE_HOLD": State.PENDING,
    "REQUEUE_FED": State.PENDING,
    "SPECIAL_EXIT": State.PENDING,
    "RESV_DEL_HOLD": State.PENDING,
    "EXPEDITING": State.PENDING,
    "RUNNING": State.RUNNING,
    "COMPLETING": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "STAGE_OUT": State.RUNNING,
    "SUSPENDED": State.SUSPENDED,
    "STOPPED": State.SUSPENDED,
    "COMPLETED": State.COMPLETED,
    "FAILED": State.FAILED,
    "TIMEOUT": State.TIMED_OUT,
    "DEADLINE": State.TIMED_OUT,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "NODE_FAIL": State.NODE_FAILED,
    "BOOT_FAIL": State.NODE_FAILED,
    "LAUNCH_FAILED": State.NODE_FAILED,
    "RECONFIG_FAIL": State.NODE_FAILED,
    "PREEMPTED": State.PREEMPTED,
    "CANCELLED": State.CANCELLED,
    "REVOKED": State.UNKNOWN,
}
"""Slurm job states. A revoked job runs on another cluster of the federation, so its state is unknown."""

_PLAIN = frozenset({"PENDING", "RUNNING", "COMPLETED"})
"""Slurm states that are no more specific than hpcbench's states."""

_WAITED = frozenset({"Resources", "Priority"})
"""Pending reasons that Slurm still reports after a job was cancelled in the queue."""

_REMEDIES: Sequence[tuple["re.Pattern[str]", str]] = (
    (
        re.compile("BadConstraints"),
        "no node has the resources that the job requests: cancel the job with `hpcbench cancel`, and check node: and "
        "scheduler: of the site file",
    ),
    (
        re.compile("launch failed requeued held"),
        "its node could not start the job: run `scontrol release` to retry it, or `hpcbench cancel` to end it",
    ),
    (
        re.compile("Partition(Node|Time)Limit"),
        "its queue does not allow this many nodes or this walltime: cancel the job with `hpcbench cancel`, and change "
        "nodes:, walltime: or queue: in the study",
    ),
    (
        re.compile("JobHeldUser|JobHeldAdmin"),
        "the job is held: run `scontrol release` to start it, or `hpcbench cancel` to end it",
    ),
)
"""Remedies for jobs that would wait forever, keyed by Slurm's reason."""

SQUEUE_FIELDS = ("JobArrayID", "State", "exit_code", "RestartCnt", "StartTime", "EndTime", "NodeList", "Reason")
"""Fields of squeue. The last field is free text, which may contain the separator."""

SACCT_FIELDS = (
    *("JobID", "State", "ExitCode", "Submit", "Start", "End", "ElapsedRaw", "NodeList", "ConsumedEnergyRaw"),
    *("MaxRSS", "Reason"),
)


_NO_FIGURES = ("JobID", "State", "Reason")


def state(word: str) -> State:
    """Convert a Slurm state, which may be truncated (``OUT_OF_ME+``) or contain a user (``CANCELLED by 1000``)."""
    first = word.split()[0].upper() if word.split() else ""
    if not first.endswith("+"):
        return STATES.get(first, State.UNKNOWN)
    meant = {ours for theirs, ours in STATES.items() if theirs.startswith(first[:-1])} if len(first) > 2 else set()
    return meant.pop() if len(meant) == 1 else State.UNKNOWN


def elements(job_id: str) -> Iterator[str]:
    """Expand an id in Slurm's output to job ids. ``123_[2-4,7%25]`` yields four ids."""
    match = re.fullmatch(r"(\d+)_\[([\d,\-:]+)(?:%\d+)?\]", job_id)
    if match is None:
        yield job_id
        return
    for part in filter(None, match[2].split(",")):
        span = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if span is not None:
            first = int(span[1])
            for index in range(first, int(span[2] or first) + 1, int(span[3] or 1)):
                yield f"{match[1]}_{index}"


def read_squeue(text: str) -> dict[str, JobStatus]:
    """Parse squeue output with `SQUEUE_FIELDS` separated by vertical bars. Other lines are skipped."""
    statuses: dict[str, JobStatus] = {}
    for cells in _rows(text, len(SQUEUE_FIELDS)):
        row = dict(zip(SQUEUE_FIELDS, cells, strict=True))
        ours = state(row["State"])
        begun = ours is not State.PENDING and _strip_placeholder(row["NodeList"])
        word = JobStatus(
            ours,
            reason=_reason(row["State"], row["Reason"] if ours.alive or row["Reason"] not in _WAITED else ""),
            exit=None if ours.alive else _ended(ours, _wait_status(row["exit_code"])),
            start=_time(row["StartTime"]) if begun else None,  # otherwise it is an estimate or the end time
            end=None if ours.alive else _time(row["EndTime"]),
            hosts=_strip_placeholder(row["NodeList"]),
            restarts=int(row["RestartCnt"]) if row["RestartCnt"].isdigit() else None,
        )
        _file(statuses, row["JobArrayID"], word)
    return statuses


def read_squeue_short(text: str) -> dict[str, JobStatus]:
    """Parse the output of old squeue versions in the format ``%i|%T|%N|%r``."""
    statuses: dict[str, JobStatus] = {}
    for job_id, theirs, hosts, reason in _rows(text, 4):
        _file(
            statuses, job_id, JobStatus(state(theirs), reason=_reason(theirs, reason), hosts=_strip_placeholder(hosts))
        )
    return statuses


def read_states(text: str) -> dict[str, JobStatus]:
    """Parse lines with an id and a state. Return statuses keyed by element id."""
    statuses: dict[str, JobStatus] = {}
    for cell, theirs in _rows(text, 2):
        statuses.update((job_id, JobStatus(state(theirs))) for job_id in elements(cell))
    return statuses


def read_sacct(text: str, fields: tuple[str, ...] = SACCT_FIELDS) -> dict[str, JobStatus]:
    """Parse sacct output with `fields`.

    From the lines of job steps, only out-of-memory states, memory usage, and energy are used.
    """
    jobs: dict[str, Mapping[str, str]] = {}
    steps: dict[str, list[Mapping[str, str]]] = {}
    for cells in _rows(text, len(fields)):
        row = dict(zip(fields, cells, strict=True))
        job_id, dot, _ = row["JobID"].partition(".")
        if dot:
            steps.setdefault(job_id, []).append(row)
        else:
            jobs[job_id] = row  # if an id was reused, the last row is used
    statuses: dict[str, JobStatus] = {}
    for job_id, job in jobs.items():
        _file(statuses, job_id, _accounted(job, steps.get(job_id, [])))
    return statuses


def _accounted(row: Mapping[str, str], steps: Sequence[Mapping[str, str]]) -> JobStatus:
    theirs = row["State"]
    ours = state(theirs)
    reason = _reason(theirs, row.get("Reason", "") if ours.alive else "")
    if ours is State.FAILED and any(state(step["State"]) is State.OUT_OF_MEMORY for step in steps):
        ours, reason = State.OUT_OF_MEMORY, f"{theirs}: OUT_OF_MEMORY of a step"
    figures = {name: _time(cell) or _strip_placeholder(cell) for name, cell in row.items() if name not in _NO_FIGURES}
    used = [value for step in (row, *steps) if (value := _strip_placeholder(step.get("MaxRSS", "")))]
    if used:
        figures["MaxRSS"] = max(used, key=parse_bytes)
    energy = [int(value) for step in (row, *steps) if (value := step.get("ConsumedEnergyRaw", "")).isdigit()]
    figures["ConsumedEnergyRaw"] = str(max(energy, default=0) or "")  # 0 means that the node has no energy meter
    return JobStatus(
        ours,
        reason=reason,
        exit=None if ours.alive else _ended(ours, _exit_code(row["ExitCode"])),
        start=_time(row["Start"]) if ours is not State.PENDING else None,
        end=None if ours.alive else _time(row["End"]),
        hosts=_strip_placeholder(row["NodeList"]),
        accounting={name: value for name, value in figures.items() if value},
    )


def _rows(text: str, fields: int) -> Iterator[list[str]]:
    """Yield the cells of lines that start with a job id."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|", fields - 1)]
        if len(cells) == fields and re.match(r"\d+([_+.].*)?$", cells[0]):
            yield cells


def _file(statuses: dict[str, JobStatus], job_id: str, word: JobStatus) -> None:
    for element in elements(job_id):
        statuses[element] = word
        base, plus, component = element.partition("+")
        if plus and component == "0":
            statuses[base] = word  # a heterogeneous job is represented by its leader


def _reason(theirs: str, reason: str) -> str:
    """Join Slurm's state (if more specific than hpcbench's), Slurm's reason, and the remedy for a stuck job."""
    reason = _strip_placeholder(reason)
    state_name = "" if theirs in _PLAIN else theirs
    waits = state(theirs) is State.PENDING
    remedy = next((remedy for pattern, remedy in _REMEDIES if waits and pattern.search(reason)), "")
    return ": ".join(part for part in (state_name, reason, remedy) if part)


def _strip_placeholder(cell: str) -> str:
    return "" if cell in ("None", "N/A", "Unknown", "None assigned", "(null)", "NONE") else cell


def _time(cell: str) -> str | None:
    """Add the UTC time zone to a time, or return None if the cell contains no time."""
    return f"{cell}Z" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", cell) else None


def _exit_code(cell: str) -> int | None:
    """Convert ``status:signal`` to a shell exit status."""
    match = re.fullmatch(r"(\d+):(\d+)", cell)
    return None if match is None else 128 + int(match[2]) if int(match[2]) else int(match[1])


def _wait_status(cell: str) -> int | None:
    """Convert a wait(2) status to a shell exit status. Some squeue versions print ``status:signal`` instead."""
    if not cell.isdigit():
        return _exit_code(cell)
    status = int(cell)
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def _ended(ours: State, status: int | None) -> int | None:
    """Return the exit status.

    Return None if Slurm reports 0 for a script that never started or never ended.
    """
    return status if status or ours is State.COMPLETED else None


def merged(listed: JobStatus, accounted: JobStatus) -> JobStatus:
    """Merge an ended job's queue status with its accounting status, which may lag behind."""
    if accounted.state.alive:
        return listed
    detail = listed.reason.partition(": ")[2]
    return replace(
        accounted,
        reason=": ".join(part for part in (accounted.reason, detail) if part),
        exit=accounted.exit if accounted.exit is not None else listed.exit,
        end=accounted.end or listed.end,
        restarts=listed.restarts,
    )
