"""Processes on a node: identification of claim holders, and termination of a run's processes."""

import contextlib
import os
import signal
from pathlib import Path

from hpcbench.batch.schedulers.processes import alive, identity


def identify_process(pid: int) -> str:
    """Return a unique identity of a process: id, start time, boot id, and host.

    The identity of a process that has ended is empty.
    """
    process = identity(pid)
    if process is None or not alive(process):
        return ""
    return f"{pid} {process['start']} {process['boot']} {process['host']}"


def is_running_here(process: str) -> bool | None:
    """Return whether the process with this identity is running, or None if it belongs to another node."""
    pid, host = process.partition(" ")[0], process.rpartition(" ")[2]
    if host != os.uname().nodename:
        return None
    return pid.isdecimal() and identify_process(int(pid)) == process


def kill_run(run: Path) -> None:
    """Kill all processes of a run on this node, regardless of their group, session, or parent.

    Launchers start daemons in separate sessions. All processes are identified by the run directory in their
    environment.
    """
    variable = b"HPCBENCH_RUN=" + os.fsencode(run)
    for _ in range(3):  # the next search finds processes that were forked in the meantime
        pids = [pid for pid in _list_pids() if variable in _read_environment(pid)]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 (many)


def _read_environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
