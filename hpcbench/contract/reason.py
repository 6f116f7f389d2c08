"""One-line reason why a run failed, from its exit status, launcher messages and the interpreter's last message."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from hpcbench.contract.complaint import Complaint, OutputLine, find_first_complaint, find_last_line, read_lines
from hpcbench.contract.event.base import BEGIN
from hpcbench.contract.exceptions import Exceptions
from hpcbench.contract.state import NO_ROOM_EXIT
from hpcbench.contract.text import make_printable
from hpcbench.contract.torchrun import RootCause

_WORKER = re.compile(r"hpcbench\.(?:train|program): (?P<words>.+)")
_HYDRA = re.compile(r"=\s+(?:RANK (?P<rank>[0-9]+) )?PID (?P<pid>[0-9]{1,9}) RUNNING AT (?P<host>\S+)")
_SIGNALS = [
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
_CAUSES = [
    (re.compile(r"oom[-_]kill", re.IGNORECASE), "out of memory: the scheduler killed a process"),
    (re.compile(r"DUE TO TIME LIMIT|TERM_RUNLIMIT"), "the job reached its time limit"),
    # Slurm: "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-03-05T11:08:03 DUE TO NODE n2 FAILURE ***"
    (
        re.compile(r"\*\*\* ((?:STEP|JOB) .* DUE TO (?:NODE|PREEMPTION|JOB REQUEUE|RESERVATION)\b.*?) *(?:\*\*\*|$)"),
        "{}",
    ),
    (re.compile(r"srun: error: (Node failure on \S+)"), "{}"),
    (
        re.compile(r"((?:CPU binding outside of job step allocation|Unable to satisfy cpu bind request).*?)\.?$"),
        "{}: set node.cores of the site file to the cores that a job gets, or add --cpu-bind=none to launcher.args",
    ),
]
"""Messages about causes outside the ranks. These messages take precedence over messages of ranks."""
_REMEDIES = [
    (re.compile("LSF affinity file"), "unset LSB_AFFINITY_HOSTFILE, the path of this file, in setup: of the site file"),
]
"""Remedies for problems reported by a launcher."""
_EXITS = {
    NO_ROOM_EXIT: " (nothing could be written: the disk is full, over its quota, read-only or gone)",
    127: " (command not found)",
}
_WORDS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6}
# Workers and interpreters exit with 0, 1 or 2 on their own. These are signals that Hydra's mpiexec returns unchanged.
_BARE_SIGNALS = {4, 6, 7, 8, 9, 11, 15}
_CRASHES = {4, 5, 6, 7, 8, 11}
"""Signals of a crash in the process itself.

Other signals come from outside the process and may have ended a rank only because another rank failed.
"""


@dataclass(frozen=True)
class FailureReason:
    """The reason for a failure, and the location of the message."""

    reason: str
    where: str | None = None
    """Location of the reason as ``file:line``, or None if only the exit status is known."""


def describe_exit(status: int | None) -> str:
    """Describe an exit status."""
    if status is None:
        return "no exit status"
    if status > 128:
        try:
            return f"killed by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"exit {status}{_EXITS.get(status, '')}"


def find_signal(status: int) -> int | None:
    """Return the signal that an exit status represents, or None if there is none.

    A shell adds 128 to the signal number. MPICH's mpiexec returns the number unchanged.
    """
    if 128 < status <= 128 + 64:
        return status - 128
    return status if status in _BARE_SIGNALS else None


class _Weight(IntEnum):
    """Kinds of evidence for a failure, strongest first."""

    WORKER = 0
    CAUSE = 1
    EXCEPTION = 2
    CRASH = 3
    KILL = 4
    VICTIM = 5


class _Evidence:
    """For each kind of evidence, the first recognized message of a launcher or interpreter."""

    def __init__(self, errors: Path, log: Path) -> None:
        self.first: dict[_Weight, FailureReason] = {}
        self._log = log
        self._culprit = ""
        for path in (errors, log):
            self._read(path)

    def _read(self, path: Path) -> None:
        exceptions, root_cause = Exceptions(), RootCause()
        for line in read_lines(path):
            self._read_line(line, f"{path}:{line.number}")
            exceptions.read(line)
            root_cause.read(line)
        if root_cause.signal:
            number, text, line_number = root_cause.signal
            self._add_signal(number, FailureReason(make_printable(text), f"{path}:{line_number}"))
        for weight, raised in (
            (_Weight.EXCEPTION, exceptions.cause(root_cause.ranks)),
            (_Weight.VICTIM, exceptions.victim()),
        ):
            if raised:
                self._add(weight, FailureReason(make_printable(raised.text), f"{path}:{raised.number}"))

    def _read_line(self, line: OutputLine, where: str) -> None:
        if matched := _WORKER.match(line.text):
            self._add(_Weight.WORKER, FailureReason(make_printable(matched["words"]), where))
        elif matched := _HYDRA.match(line.text):
            self._culprit = self._culprit or _rank(matched["rank"], matched["pid"], matched["host"], self._log)
        elif killed := _signal(line.text, self._culprit):
            self._add_signal(killed[0], FailureReason(killed[1], where))
        elif cause := _cause(line.text):
            self._add(_Weight.CAUSE, FailureReason(cause, where))

    def _add(self, weight: _Weight, diagnosis: FailureReason) -> None:
        self.first.setdefault(weight, diagnosis)

    def _add_signal(self, number: int, diagnosis: FailureReason) -> None:
        self._add(_Weight.CRASH if number in _CRASHES else _Weight.KILL, diagnosis)


def diagnose(status: int | None, errors: Path, log: Path) -> FailureReason:
    """Determine why a run failed.

    Parameters
    ----------
    status
        Exit status of the launcher, or None if it is not known.
    errors, log
        Standard error and log of the run. A missing file counts as empty.

    Notes
    -----
    Both files are searched for known messages of launchers and interpreters. If there is no such message and the log
    has no event, the launcher did not start the run, and the reason is the launcher's first complaint. Such a complaint
    also takes precedence over signals that the launcher sends to end ranks. If the run had begun, the reason is the
    last message on its standard error.
    """
    evidence = _Evidence(errors, log).first
    best = min(evidence, default=None)
    began = next(_beginning(log, BEGIN), None) is not None
    if best is _Weight.KILL and _Weight.VICTIM not in evidence and not began:
        for path in (errors, log):
            complaint = find_first_complaint(path)
            if complaint and complaint.complains and not _signal(complaint.text, ""):
                return _quote(status, complaint, path)
    if best is not None:
        return evidence[best]
    if status is None:
        return FailureReason("no exit status was recorded")
    signal_number = find_signal(status)
    if signal_number is None or not began:
        for path in (errors, log):
            message = find_last_line(path) if began else find_first_complaint(path)
            # A launcher that waits for ranks it could not start is finally killed, but has printed the reason before.
            if message and (signal_number is None or status < 128 or message.complains):
                return _quote(status, message, path)
    if signal_number is not None:
        return FailureReason(f"a rank was killed by signal {_name(signal_number)}, exit status {status}")
    remark = " (command not found)" if status == 127 else ""
    return FailureReason(f"exit status {status}{remark}, without a message")


def _quote(status: int | None, complaint: Complaint, path: Path) -> FailureReason:
    remedy = next((f": {remedy}" for pattern, remedy in _REMEDIES if pattern.search(complaint.text)), "")
    ended = "" if status is None else f"exit status {status}: "
    return FailureReason(
        f"{ended}{complaint.text.rstrip('.') if remedy else complaint.text}{remedy}", f"{path}:{complaint.line}"
    )


def _cause(text: str) -> str:
    for pattern, form in _CAUSES:
        if matched := pattern.search(text):
            return make_printable(form.format(*matched.groups()))
    return ""


def _beginning(log: Path, begin: str) -> Iterator[str]:
    """Yield the lines of a log that begin with `begin`."""
    try:
        with log.open("rb") as stream:
            yield from (raw.decode("utf-8", "replace") for raw in stream if raw.startswith(begin.encode()))
    except OSError:
        return


def _signal(text: str, culprit: str) -> tuple[int, str] | None:
    """Return the signal that a launcher reports, and a sentence about the rank that received the signal."""
    for pattern in _SIGNALS:
        if matched := pattern.search(text):
            groups = matched.groupdict()
            number = int(groups["signal"]) if groups.get("signal") else _WORDS[groups["word"]]
            who = f"rank {groups['rank']} on {groups['host']}" if groups.get("rank") else culprit or "a rank"
            return number, make_printable(f"{who} was killed by signal {_name(number)}")
    return None


def _rank(rank: str | None, pid: str, host: str, log: Path) -> str:
    """Describe the rank of a process. The log's last ``environment`` event contains the process ids of the ranks."""
    if rank:
        return f"rank {rank} on {host}"
    # Imported here because only some launchers do not report the rank: `hpcbench status` starts faster without it.
    from hpcbench.contract.event.machine import Environment

    environments = [event for line in _beginning(log, Environment.begin()) if (event := Environment.from_line(line))]
    for member in (environments[-1].world or ()) if environments else ():
        if member.pid == int(pid) and member.rank is not None:
            return f"rank {member.rank} (pid {pid} on {host})"
    return f"a rank (pid {pid} on {host})"


def _name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return str(number)
