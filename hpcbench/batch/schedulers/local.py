"""Local scheduler: a detached process that runs the job scripts of a submission sequentially.

A per-user lock prevents two submissions from running at the same time and disturbing each other's measurements. Jobs
inherit the lock, so it is held even if the queue is killed while a job continues. A job id is the absolute path of the
job directory.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

import hpcbench
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, write_json
from hpcbench.batch.reserve import describe_disk_error, set_aside, written
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.local_queue import LocalQueue, queues, read_queue
from hpcbench.batch.schedulers.processes import alive, end_tree, here, identity
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt
from hpcbench.batch.sites.site import Site
from hpcbench.batch.tracking.ledger import Ledger, SubmittedJob
from hpcbench.batch.tracking.marks import read_mark
from hpcbench.contract.ending import read_tail
from hpcbench.contract.problems import show
from hpcbench.contract.state import State
from hpcbench.contract.submission import read_submission
from hpcbench.errors import UserError
from hpcbench.files import read_json

GRACE = 15.0
"""Seconds within which a job must end after a signal. The job script gives the launcher 5 s of this time."""
_LOOK = 0.2
"""Seconds between two checks of a dependency."""


class Local(JobScheduler):
    """Scheduler that runs jobs on this machine in the background."""

    kind = "local"
    interval = 0.5
    keeps_accounts = False
    slowest = 0.0

    def __init__(self, root: Path, site: Site) -> None:
        super().__init__(root, site)
        self._waiting: list[BatchJob] = []

    @classmethod
    def check(cls, site: Site) -> None:
        """Check the queue lock, because a queue reports errors only in its log."""
        lock_path()  # report errors now, because the queue prints only to its log

    def submit(self, job: BatchJob) -> Receipt:
        """Add the job to the next queue of this submission."""
        self._waiting.append(job)
        id = str(self.root / "jobs" / job.jobs[0])
        for name in ("process.json", "dropped.json"):
            (Path(id) / name).unlink(missing_ok=True)
        return Receipt(id, [id])

    def begin(self) -> str:
        """Start a queue that runs the added jobs."""
        if not self._waiting:
            return ""
        directory = self.root / "queues"
        directory.mkdir(exist_ok=True)
        number = len(list(directory.glob("*.log"))) + 1
        jobs = [
            {"id": job.jobs[0], "name": job.name, "after": list(job.after), "after_any": job.after_any}
            for job in (*self._forgotten(), *self._waiting)
        ]
        with (directory / f"{number}.log").open("wb") as log:
            queue = subprocess.Popen(
                [sys.executable, "-m", "hpcbench.batch.schedulers.local", str(self.root), str(number)],
                cwd=self.root,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        write_json(directory / f"{number}.json", {"process": _identity(queue), "time": now(), "jobs": jobs})
        assert queue.stdin is not None
        queue.stdin.close()  # start signal for the queue, because its file is now complete
        self._waiting = []
        return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''} run here in the background, one after another"

    def _forgotten(self) -> list[SubmittedJob]:
        """Return the jobs of a command that was killed before it started a queue."""
        begun = {job["name"] for _, queue in queues(self.root) for job in queue["jobs"]}
        begun |= {job.name for job in self._waiting}
        ledger = Ledger(self.root)
        last = [job for job in ledger.submitted if job.id and not job.cancelled and ledger.of(job.jobs[0]) is job]
        return [job for job in last if job.name not in begun]

    def find(self, name: str, jobs: int) -> Receipt | None:
        """Return None, because a job without a started queue does not exist."""
        return None

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the statuses of these ids from queue and job files."""
        queue_of = {job["id"]: (path, queue) for path, queue in queues(self.root) for job in queue["jobs"]}
        return {id: _word(self.root, Path(id), *queue_of.get(Path(id).name, (None, None))) for id in ids}

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Cancel running and pending jobs."""
        outcomes = {}
        statuses = self.poll(ids)
        for id, word in statuses.items():
            if not word.state.alive:
                outcomes[id] = "already over" if word.state is not State.UNKNOWN else word.reason
                continue
            _drop(Path(id))
            process = read_json(Path(id) / "process.json")
            if process is not None and alive(process):
                end_tree(process, grace=GRACE)
            outcomes[id] = "ended"
        return outcomes


def _drop(directory: Path, reason: str = "") -> None:
    """Record that a pending job must not start, or that a running job must end."""
    written(directory, lambda: write_json(directory / "dropped.json", {"time": now(), "reason": reason}))


def _word(root: Path, directory: Path, path: Path | None, queue: LocalQueue | None) -> JobStatus:
    """Return the status of the job in a directory, given its queue."""
    expected = root / "jobs" / directory.name
    if not (directory.exists() and expected.exists() and directory.samefile(expected)):
        return JobStatus(State.UNKNOWN, f"was moved or copied from {directory.parent.parent}, where it was submitted")
    if queue is None or path is None:
        lives = alive(read_json(directory / "process.json"))
        return JobStatus(State.RUNNING) if lives else JobStatus(State.LOST, "no local queue was started for it")
    if not here(queue["process"]):
        return JobStatus(
            State.UNKNOWN, f"its queue runs on {queue['process'].get('host')}: run the command on that host"
        )
    process, dropped = read_json(directory / "process.json"), read_json(directory / "dropped.json")
    over = process is not None and process.pop("over", None)
    if alive(process):
        return JobStatus(State.RUNNING)
    if dropped is not None:
        return JobStatus(State.CANCELLED, str(dropped.get("reason", "")))
    if over == "time limit":
        return JobStatus(State.TIMED_OUT, "reached the time limit of its job")
    mark = read_mark(directory) if process is not None else None
    left = mark if mark is not None and process is not None and mark.id == str(process.get("pid")) else None
    if left is not None and left.state == "ended":
        return JobStatus(State.FAILED if left.exit else State.COMPLETED, exit=left.exit)
    if alive(queue["process"]) and (process is None or (left is not None and left.state == "requeued")):
        return JobStatus(State.PENDING, "waits for its turn on this machine")
    if process is not None:
        return JobStatus(State.LOST, "its script was killed before it could record its exit status")
    lines = [line for line in read_tail(path.with_suffix(".log")) if line.strip()]
    why = f" ({show(lines[-1], 120)[1:-1]})" if lines else ""
    return JobStatus(State.LOST, f"the local queue ended before this job began{why}")


def environment() -> dict[str, str]:
    """Return the process environment, with absolute paths in PYTHONPATH."""
    variables = dict(os.environ)
    paths = [str(Path(path).resolve()) for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    package = Path(hpcbench.__file__).resolve().parent.parent
    if (package / "pyproject.toml").is_file() and str(package) not in paths:
        paths.insert(0, str(package))
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    return variables


def lock_path() -> Path:
    """Return the path of the user's lock on this machine.

    Raises
    ------
    UserError
        The directory of the lock belongs to another user.
    """
    directory = Path(tempfile.gettempdir()) / f"hpcbench-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        raise UserError(f"{directory}: belongs to another user: set TMPDIR to one of your directories")
    return directory / "local.lock"


def serve(root: Path, number: str) -> None:
    """Run the jobs of one queue sequentially, for the submission at `root`."""
    queue = read_queue(root / "queues" / f"{number}.json")
    if queue is None:
        raise UserError(f"{root}: contains no such queue: give the directory of a submission")
    planned = {job.id: job for job in read_submission(root).jobs}
    for job in queue["jobs"]:
        directory = root / "jobs" / job["id"]
        reason = _await(job["after"], any_end=job["after_any"])
        if reason:
            _drop(directory, reason)
            continue
        with lock_path().open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            again = True
            while again and not (directory / "dropped.json").exists():
                limits = planned[job["id"]]
                _run(root, directory, limits.walltime, limits.stop_ahead, lock)
                mark = read_mark(directory)
                again = mark is not None and mark.state == "requeued"


def _await(ids: Sequence[str], *, any_end: bool) -> str:
    """Wait until these jobs, possibly of other submissions, have ended. Return why the next job cannot start."""
    for id in ids:
        root = Path(id).parent.parent
        local = Local(root, None)  # type: ignore[arg-type]  # the site is not needed
        while True:
            mark = read_mark(Path(id))
            if mark is not None and mark.state == "ended" and (mark.exit == 0 or any_end):
                break
            word = local.poll([id])[id]
            if not word.state.alive:
                if any_end:
                    break
                return f"{id} had to complete before this job, but did not"
            time.sleep(_LOOK)
    return ""


def _run(root: Path, directory: Path, limit: int | None, ahead: int, lock: IO[str]) -> None:
    """Run a job once. Request a stop before the time limit, and end the job at the limit."""
    with contextlib.suppress(OSError):  # the job script reports a full disk itself
        set_aside(directory)
    with (directory / "out.log").open("ab") as log:
        process = subprocess.Popen(
            ["bash", str(directory / "job.sh")],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    process_identity = _identity(process)
    written(directory, lambda: write_json(directory / "process.json", process_identity))
    if (directory / "dropped.json").exists():  # dropped by a command that did not see the process yet
        end_tree(process_identity, grace=GRACE)
    if limit is None:
        process.wait()
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, limit - ahead))
        return
    process.send_signal(signal.SIGUSR1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(min(ahead, limit))
        return
    written(directory, lambda: write_json(directory / "process.json", {**process_identity, "over": "time limit"}))
    end_tree(process_identity, grace=GRACE)
    process.wait()


def _identity(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the identity of a child process. The process id remains valid until `wait` is called."""
    child_identity = identity(child.pid)
    if child_identity is None:
        raise UserError(f"/proc/{child.pid}/stat: cannot be read: the local scheduler needs Linux's /proc")
    return child_identity


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Run ``python -m hpcbench.batch.schedulers.local ROOT NUMBER``."""
    # nohup ignores these signals, as does make for background jobs. A shell cannot trap signals ignored at its start.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _stop)
    sys.stdin.read()
    try:
        serve(Path(sys.argv[1]), sys.argv[2])
    except UserError as error:
        print(f"{now()} {error}", file=sys.stderr)
        return 2
    except OSError as error:  # the disk is full, read-only, or unavailable
        print(f"{now()} {describe_disk_error(Path(sys.argv[1]), error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
