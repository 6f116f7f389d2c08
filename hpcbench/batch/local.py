"""The local scheduler: a detached process that runs a submission's job scripts one after another.

A lock a user keeps two submissions from running at once, for each would slow the other and both would measure that. The
lock is handed on to the job, so that it holds even where the queue was killed and its job lives on.
"""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import IO, Any

import hpcbench
from hpcbench.batch.byhand import Scheduler, register_scheduler
from hpcbench.batch.files import now, read_json, write_json
from hpcbench.batch.processes import alive, end_tree, here, identity
from hpcbench.errors import UserError

GRACE = 15.0
"""Seconds that a job has to end itself; its script gives the launcher five of them."""


@register_scheduler("local")
class Local(Scheduler):
    """This machine, in the background."""

    def check(self) -> None:
        lock_path()  # what is wrong with it is better said now than by the queue, which nobody watches

    def submit(self, root: Path, jobs: list[str]) -> str:
        with (root / "queue.log").open("wb") as log:
            queue = subprocess.Popen(
                [sys.executable, "-m", "hpcbench.batch.local", str(root)],
                cwd=root,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        write_json(root / "queue.json", {**_identity(queue), "time": now()})
        return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''} run here in the background, one after another"

    def cancel(self, root: Path) -> str:
        process = read_json(root / "queue.json")
        if process is None:
            raise UserError(f"{root}: nothing was started here: there is nothing to cancel")
        process.pop("time", None)
        if not here(process):
            raise UserError(f"{root}: its queue runs on {process.get('host')}: cancel it there")
        write_json(root / "cancel.json", {"time": now()})
        jobs = [data for path in sorted(root.glob("jobs/*/process.json")) if (data := read_json(path))]
        running = [job for job in jobs if alive(job)]
        was_alive = alive(process)
        for job in running:
            end_tree(job, grace=GRACE)
        if was_alive:
            end_tree(process, grace=GRACE)
        if not (running or was_alive):
            (root / "cancel.json").unlink()
            return "nothing was running any more"
        return f"ended {len(running)} running job{'' if len(running) == 1 else 's'}, and what waited is dropped"


def environment() -> dict[str, str]:
    """Ours, with search paths that hold from every directory."""
    found = dict(os.environ)
    paths = [str(Path(path).resolve()) for path in found.get("PYTHONPATH", "").split(os.pathsep) if path]
    package = Path(hpcbench.__file__).resolve().parent.parent
    if (package / "pyproject.toml").is_file() and str(package) not in paths:
        paths.insert(0, str(package))
    if paths:
        found["PYTHONPATH"] = os.pathsep.join(paths)
    return found


def lock_path() -> Path:
    """The user's lock on this machine.

    Raises
    ------
    UserError
        Somebody else made the directory that it lies in.
    """
    directory = Path(tempfile.gettempdir()) / f"hpcbench-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        raise UserError(f"{directory}: is not yours: remove it, or set TMPDIR to a directory of your own")
    return directory / "local.lock"


def serve(root: Path) -> None:
    """Run the jobs of the submission at `root`, each when the one before it has ended."""
    submission = read_json(root / "submission.json")
    if submission is None:
        raise UserError(f"{root}: no submission.json: give the directory that `hpcbench submit` made")
    with lock_path().open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for job in submission["jobs"]:
            if (root / "cancel.json").exists():
                return
            _run(root, job["id"], job["script"], lock)


def _run(root: Path, job: str, script: str, lock: IO[str]) -> None:
    with (root / "jobs" / job / "out.log").open("ab") as log:
        process = subprocess.Popen(
            ["bash", script],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    write_json(root / "jobs" / job / "process.json", _identity(process))
    process.wait()


def _identity(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    """A child's identity; it has one until it is waited for."""
    found = identity(child.pid)
    if found is None:
        raise UserError(f"/proc/{child.pid}/stat: cannot be read: the local scheduler needs Linux's /proc")
    return found


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Entry of ``python -m hpcbench.batch.local ROOT``."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        serve(Path(sys.argv[1]))
    except UserError as error:
        print(f"{now()} {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
