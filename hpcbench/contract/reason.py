"""Why a run failed, in one line, from its exit status, the launcher's messages and the interpreter's last message."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.event.base import BEGIN
from hpcbench.contract.stamp import unstamped
from hpcbench.contract.state import NO_ROOM_EXIT
from hpcbench.contract.text import printable

_LONGEST = 1 << 16
_MOST = 200
"""Number of lines that are kept of each end of a file: the first messages and the last ones."""
_WORKER = re.compile(r"hpcbench\.(?:train|program): (?P<words>.+)")
_HYDRA = re.compile(r"=\s+(?:RANK (?P<rank>[0-9]+) )?PID (?P<pid>[0-9]{1,9}) RUNNING AT (?P<host>\S+)")
# PyTorch puts the rank before an exception: "[rank3]: ValueError: ..."
_EXCEPTION = re.compile(
    r"(?:\[rank[0-9]+\]: )?(?P<words>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit)(?:: .*)?)"
)
_SAID = [
    # Open MPI and PRRTE: "process rank 2 with PID 0 on node n1 exited on signal 9 (Killed)."
    re.compile(r"rank (?P<rank>[0-9]+) with PID [0-9]+ on node (?P<host>\S+) exited on signal (?P<signal>[0-9]{1,2})"),
    # MPICH's Hydra
    re.compile(r"EXIT STRING: .*\(signal (?P<signal>[0-9]{1,2})\)"),
    # Intel MPI
    re.compile(r"KILLED BY SIGNAL: (?P<signal>[0-9]{1,2})"),
    # Slurm: "srun: error: n1: task 3: Killed"
    re.compile(r"srun: error: (?P<host>\S+): task (?P<rank>[0-9]+): (?P<word>Killed|Segmentation fault|Aborted)"),
    re.compile(r"srun: error: \S+: tasks [-0-9,]+: (?P<word>Killed|Segmentation fault|Aborted)"),
]
_LIMITS = [
    (re.compile(r"oom[-_]kill", re.IGNORECASE), "out of memory: the scheduler killed a process"),
    (re.compile(r"DUE TO TIME LIMIT|TERM_RUNLIMIT"), "the job's time was up"),
]
_EXITS = {
    NO_ROOM_EXIT: " (nothing could be written: the disk is full, over its quota, read-only or gone)",
    127: " (command not found)",
}
_WORDS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6}
# What a worker or an interpreter exits with by itself is 0, 1 or 2; these are signals that Hydra's mpiexec hands on.
_BARE_SIGNALS = {4, 6, 7, 8, 9, 11, 15}

# Lines that say nothing about why a run failed: rulers, warnings, what launchers count afterwards.
_RULER = re.compile(r"[\W_]*")
_WARNING = re.compile(r"(?:\S+:\s*)?warning\b|.*\b\w*warning: |A high-performance Open MPI ", re.IGNORECASE)
_NOISE = re.compile(
    rf"{_RULER.pattern}$|=|YOUR APPLICATION|This typically|Please see"
    r"|Abort\(|Traceback |During handling|The above exception"
    r"|srun: (?!fatal: |error: )|srun: error: \S+: tasks? \S+ (?:Exited with|Terminated)|slurmstepd-\S+: error: \*\*\*"
)
_HYDRA_CALL = re.compile(r"\[(?:mpiexec|proxy)\S*@[^\]]*\] (?:\w+ \([^)]*\): )?")
"""The name of its own function that MPICH's launcher writes before a message."""
_COMPLAINS = re.compile(
    r"error|fatal|fail|cannot|can't|could ?n[o']t|unable|not found|no such|denied|not enough|not allowed|detected"
    r"|invalid|illegal|refus|unknown|unrecogni|not recogni|must|missing|abort|disallow|exceed",
    re.IGNORECASE,
)


_CANNOT_LOAD = re.compile(
    r"can ?not (load|create|find).*(pmi|mpi)|could ?n[o']t (load|find).*plugin|invalid mpi (plugin )?type",
    re.IGNORECASE,
)
"""A launcher that was told to speak another interface: it says so among harmless complaints of that interface."""


@dataclass(frozen=True)
class Diagnosis:
    """The reason of a failure, and the place where it was read."""

    reason: str
    where: str | None = None
    """``file:line`` of the reason; None if only the exit status tells it."""


def exit_words(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "no exit status"
    if status > 128:
        try:
            return f"killed by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"exit {status}{_EXITS.get(status, '')}"


def signal_of(status: int) -> int | None:
    """The signal that an exit status stands for. A shell adds 128 to it, MPICH's mpiexec returns it unchanged."""
    if 128 < status <= 128 + 64:
        return status - 128
    return status if status in _BARE_SIGNALS else None


def diagnose(status: int | None, errors: Path, log: Path) -> Diagnosis:
    """Say why a run failed.

    Parameters
    ----------
    status
        Exit status of the launcher, None where it is not known.
    errors, log
        The run's standard error and log. A missing file is the same as an empty one.

    Notes
    -----
    Known messages of launchers and interpreters are searched for in both files. If there is none and the log has no
    event, the run never began: its launcher refused, and the reason is the launcher's first complaint. If the run had
    begun, the reason is the last message on its standard error.
    """
    said: list[tuple[int, Diagnosis]] = []
    culprit = ""
    for path in (errors, log):
        for line, words in _lines(path):
            where = f"{path}:{line}"
            if matched := _WORKER.match(words):
                said.append((0, Diagnosis(printable(matched["words"]), where)))
            elif matched := _HYDRA.match(words):
                culprit = culprit or _rank(matched["rank"], matched["pid"], matched["host"], log)
            elif found := _signal(words, culprit):
                said.append((2, Diagnosis(found, where)))
            elif found := next((reason for pattern, reason in _LIMITS if pattern.search(words)), ""):
                said.append((1, Diagnosis(found, where)))
            elif matched := _EXCEPTION.fullmatch(words):
                said.append((3, Diagnosis(printable(matched["words"]), where)))
    if said:
        rank = min(rank for rank, _ in said)
        best = [diagnosis for priority, diagnosis in said if priority == rank]
        # Of a chain of exceptions the last is the one that ended the rank; of signals the first started it.
        return best[-1] if rank == 3 else best[0]
    if status is None:
        return Diagnosis("no exit status was recorded")
    killed = signal_of(status)
    began = next(_beginning(log, BEGIN), None) is not None
    if killed is None or not began:
        for path in (errors, log):
            spoken = _last(path) if began else _first(path)
            # A launcher that waits for ranks which it could not start is killed in the end, and has said why before.
            if spoken and (killed is None or status < 128 or _COMPLAINS.search(spoken.reason)):
                return Diagnosis(f"exit status {status}: {spoken.reason}", spoken.where)
    if killed is not None:
        return Diagnosis(f"a rank was killed by signal {_name(killed)}, exit status {status}")
    words = " (command not found)" if status == 127 else ""
    return Diagnosis(f"exit status {status}{words}, and nothing says why")


def _first(path: Path) -> Diagnosis | None:
    """The first line with a complaint, else the first useful line.

    A sentence that is wrapped over several lines is joined.
    """
    kept = [one for one, _ in zip(_lines(path), range(_MOST), strict=False)]
    telling = []
    ruler, warned = -1, -1
    for index, (number, words) in enumerate(kept):
        if _RULER.fullmatch(words):
            ruler = number
        elif number == warned + 1 or (number == ruler + 1 and words.startswith("WARNING")):
            warned = number  # a paragraph of Open MPI between rulers
        elif not (_NOISE.match(words) or _WARNING.match(words)):
            telling.append((index, words))
    if not telling:
        return None
    index, words = next(
        (one for wanted in (_CANNOT_LOAD, _COMPLAINS) for one in telling if wanted.search(one[1])), telling[0]
    )
    line = kept[index][0]
    for below, (number, more) in enumerate(kept[index + 1 : index + 3], line + 1):
        if number != below or words[-1] in ".:;!?)\"'" or _NOISE.match(more):
            break
        words += f" {more}"
    return Diagnosis(_bare(words), f"{path}:{line}")


def _last(path: Path) -> Diagnosis | None:
    found = None
    for line, words in _lines(path):
        if not (_NOISE.match(words) or _WARNING.match(words) or _HYDRA_CALL.match(words)):
            found = Diagnosis(_bare(words), f"{path}:{line}")
    return found


def _bare(words: str) -> str:
    return printable(_HYDRA_CALL.sub("", words, count=1))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty and that the run did not write itself, with their numbers."""
    try:
        with path.open("rb") as stream:
            number = 0
            fresh = True
            while raw := stream.readline(_LONGEST):
                number += fresh
                raw = unstamped(raw)[1] if fresh else raw
                # Step lines and events are the bulk of a log, and tell nothing of a failure.
                if fresh and not raw.startswith((b"step ", b"{")) and (text := raw.decode("utf-8", "replace").strip()):
                    yield number, text
                fresh = raw.endswith(b"\n")
    except OSError:
        return


def _beginning(log: Path, begin: str) -> Iterator[str]:
    """The lines of a log that begin with this text."""
    try:
        with log.open("rb") as stream:
            yield from (raw.decode("utf-8", "replace") for raw in stream if raw.startswith(begin.encode()))
    except OSError:
        return


def _signal(words: str, culprit: str) -> str:
    for pattern in _SAID:
        if matched := pattern.search(words):
            groups = matched.groupdict()
            number = int(groups["signal"]) if groups.get("signal") else _WORDS[groups["word"]]
            who = f"rank {groups['rank']} on {groups['host']}" if groups.get("rank") else culprit or "a rank"
            return printable(f"{who} was killed by signal {_name(number)}")
    return ""


def _rank(rank: str | None, pid: str, host: str, log: Path) -> str:
    """The rank of a process in words. The ranks give their process numbers in the log's last ``environment``."""
    if rank:
        return f"rank {rank} on {host}"
    # Only some launchers leave the rank to be found out: `hpcbench status` need not wait for what reads it.
    from hpcbench.contract.event.machine import Environment

    told = [found for words in _beginning(log, Environment.begin()) if (found := Environment.from_line(words))]
    for one in (told[-1].world or ()) if told else ():
        if one.pid == int(pid) and one.rank is not None:
            return f"rank {one.rank} (pid {pid} on {host})"
    return f"a rank (pid {pid} on {host})"


def _name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return str(number)
