"""Why a run failed, in one line: exit status, what the launcher said, what the interpreter said last."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.lines import printable

_LONGEST = 1 << 16
_WORKER = re.compile(r"hpcbench\.train: (?P<words>.+)")
_HYDRA = re.compile(r"=\s+(?:RANK (?P<rank>[0-9]+) )?PID (?P<pid>[0-9]{1,9}) RUNNING AT (?P<host>\S+)")
_EXCEPTION = re.compile(r"(?P<words>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit)(?:: .*)?)")
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
_WORDS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6}
# What a worker or an interpreter exits with by itself is 0, 1 or 2; these are signals that Hydra's mpiexec hands on.
_BARE_SIGNALS = {4, 6, 7, 8, 9, 11, 15}


@dataclass(frozen=True)
class Diagnosis:
    """The reason of a failure, and where it was read."""

    reason: str
    where: str | None = None
    """``file:line``; None where only the exit status speaks."""


def signal_of(status: int) -> int | None:
    """The signal that an exit status tells of: a shell adds 128, MPICH's mpiexec hands it on as it is."""
    if 128 < status <= 128 + 64:
        return status - 128
    return status if status in _BARE_SIGNALS else None


def diagnose(status: int | None, files: list[Path], ranks: Sequence[Mapping[str, Any]] = ()) -> Diagnosis:
    """Say why a run failed.

    Parameters
    ----------
    status
        Exit status of the launcher, None where it is not known.
    files
        What to look through: the run's standard error and log. One that is missing says nothing.
    ranks
        What the ranks say of themselves, which names the rank of a process.
    """
    said: list[tuple[int, Diagnosis]] = []
    culprit = ""
    for path in files:
        for line, words in _lines(path):
            where = f"{path}:{line}"
            if matched := _WORKER.match(words):
                said.append((0, Diagnosis(printable(matched["words"]), where)))
            elif matched := _HYDRA.match(words):
                culprit = culprit or _rank(matched["rank"], matched["pid"], matched["host"], ranks)
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
    if killed is not None:
        return Diagnosis(f"a rank was killed by signal {_name(killed)}, exit status {status}")
    return Diagnosis(f"exit status {status}, and nothing says why")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as stream:
            number = 0
            fresh = True
            while raw := stream.readline(_LONGEST):
                number += fresh
                # Step lines and events are the bulk of a log, and tell nothing of a failure.
                if fresh and not raw.startswith((b"step ", b"{")) and (text := raw.decode("utf-8", "replace").strip()):
                    yield number, text
                fresh = raw.endswith(b"\n")
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


def _rank(rank: str | None, pid: str, host: str, ranks: Sequence[Mapping[str, Any]]) -> str:
    if rank:
        return f"rank {rank} on {host}"
    for one in ranks:
        if one.get("pid") == int(pid) and isinstance(one.get("rank"), int):
            return f"rank {one['rank']} (pid {pid} on {host})"
    return f"a rank (pid {pid} on {host})"


def _name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return str(number)
