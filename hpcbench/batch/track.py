"""What became of jobs and runs, from the marks that they leave; what left no mark is not done."""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json
from hpcbench.batch.processes import alive, here
from hpcbench.batch.states import State
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import shown, shown_path


@dataclass(frozen=True)
class Status:
    """State of a job or a run, and why."""

    state: State
    reason: str = ""
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True)
class Tracked:
    """A submission with the state of all it holds."""

    root: Path
    submission: dict[str, Any]
    jobs: dict[str, Status]
    runs: dict[str, Status]

    @property
    def failed(self) -> bool:
        """Whether a run ended otherwise than it should, or nobody knows how."""
        good = (State.PENDING, State.RUNNING, State.COMPLETED)
        return any(status.state not in good for status in self.runs.values())

    @property
    def over(self) -> bool:
        """Whether nothing waits or runs any more."""
        return not any(status.state in (State.PENDING, State.RUNNING) for status in self.runs.values())


_KILLED = re.compile(r"(?:EXIT STRING: .*|KILLED BY SIGNAL.*|exited on )(signal \d+|: \d+)")
"""How MPICH and Open MPI say that a rank died of a signal."""
_NOISE = re.compile(r"step |\{|=|YOUR APPLICATION|This typically|Please see|\[mpiexec|\[proxy|Abort\(|-----")
"""Lines that say nothing about why a run failed."""


def track(root: Path) -> Tracked:
    """State of every job and run of the submission at `root`.

    Raises
    ------
    UserError
        Its submission.json is missing or damaged.
    """
    path = root / "submission.json"
    submission = read_json(path)
    try:
        if submission is None:
            raise KeyError("a readable submission.json")
        jobs = {job["id"]: _job(root, job["id"], submission) for job in submission["jobs"]}
        runs = {run["id"]: _run(root, run, jobs[run["job"]]) for run in submission["runs"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{shown_path(path)}: damaged, lacks {error}: submit the study again") from None
    return Tracked(root, submission, jobs, runs)


def _job(root: Path, job: str, submission: dict[str, Any]) -> Status:
    mark = read_json(root / "jobs" / job / "status.json")
    cancelled = read_json(root / "cancel.json")
    if mark is not None:
        status = _exit_words(mark.get("exit"))
        state = State.COMPLETED if mark.get("exit") == 0 else State.FAILED
        if state is State.FAILED and cancelled and str(mark.get("end", "")) >= str(cancelled.get("time")):
            state, status = State.CANCELLED, ""
        return Status(state, "" if state is State.COMPLETED else status, mark.get("start"), mark.get("end"))
    if submission.get("dry_run"):
        return Status(State.PENDING, "a dry run: not submitted")
    if submission["scheduler"] != "local":
        runs = next(j["runs"] for j in submission["jobs"] if j["id"] == job)
        if any(read_json(root / "runs" / run / "status.json") for run in runs):
            return Status(State.RUNNING, "by its marks; its scheduler was not asked")
        return Status(State.PENDING, f"waits in the queue of {submission['site']}, or was not handed in")
    return _local_job(root, job, cancelled is not None)


def _local_job(root: Path, job: str, cancelled: bool) -> Status:
    """State of a job without an exit mark under the local scheduler."""
    queue = read_json(root / "queue.json")
    if queue is None:
        return Status(State.LOST, "the local queue was never started")
    queue.pop("time", None)
    if not here(queue):
        return Status(State.UNKNOWN, f"its queue runs on {queue.get('host')}: ask there")
    process = read_json(root / "jobs" / job / "process.json")
    if alive(process):
        return Status(State.RUNNING)
    if cancelled:
        return Status(State.CANCELLED)
    if process is not None:
        return Status(State.LOST, "its script was killed before it could leave its exit mark")
    if alive(queue):
        return Status(State.PENDING, "waits for its turn on this machine")
    said = [line for line in _tail(root / "queue.log") if line.strip()]
    why = f" ({shown(said[-1], 120)[1:-1]})" if said else ""
    return Status(State.LOST, f"the local queue ended before this job{why}: submit it again")


def _run(root: Path, run: dict[str, Any], job: Status) -> Status:
    directory = root / run["path"]
    mark = read_json(directory / "status.json")
    if mark is None:
        if job.state in (State.PENDING, State.RUNNING):
            return Status(State.PENDING, job.reason if job.state is State.PENDING else "")
        if job.state in (State.COMPLETED, State.FAILED):
            return Status(State.LOST, f"its job ended before it started: {job.reason}".rstrip(": "))
        return Status(job.state, job.reason)
    start, end = mark.get("start"), mark.get("end")
    if mark.get("state") != "ended":
        if job.state is State.RUNNING:
            return Status(State.RUNNING, "", start)
        if job.state in (State.CANCELLED, State.UNKNOWN):
            return Status(job.state, job.reason, start)
        return Status(State.LOST, "its job ended without a word about it", start, job.end)
    code, event = mark.get("exit"), end_event(directory / "log.txt")
    if code == 0:
        if event is None:
            return Status(State.UNKNOWN, "exit 0, but its log has no end", start, end)
        if event.get("state") == "completed":
            return Status(State.COMPLETED, "", start, end)
    if job.state is State.CANCELLED and end is not None and job.end is not None and code in (129, 130, 143):
        return Status(State.CANCELLED, "", start, end)
    said = "" if event is None else str(event.get("reason") or event.get("state") or "")
    reason = said or last_words(directory)
    return Status(State.FAILED, _exit_words(code) + (f": {shown(reason, 160)[1:-1]}" if reason else ""), start, end)


def _exit_words(code: Any) -> str:
    if not isinstance(code, int):
        return "no exit status"
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit {code}" if code != 127 else "exit 127 (command not found)"


def end_event(log: Path) -> dict[str, Any] | None:
    """The log's `end` event, from its last lines; None where it has none."""
    for line in reversed(_tail(log)):
        if line.startswith('{"event": "end"'):
            try:
                event = json.loads(line)
            except ValueError:
                return None
            return event if isinstance(event, dict) else None
    return None


def last_words(directory: Path) -> str:
    """The line that best says why a run failed: a launcher's word of a signal, else the last error line."""
    errors, log = _tail(directory / "err.txt"), _tail(directory / "log.txt")
    killed = [match[1] for line in (*errors, *log) if (match := _KILLED.search(line))]
    for lines in (errors, log):
        said = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
        if said and not killed:
            return said[-1]
    return f"a rank was ended by {killed[0]}" if killed else ""


def _tail(path: Path, size: int = 65536) -> list[str]:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - size))
            return stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
