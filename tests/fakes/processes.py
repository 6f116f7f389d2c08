"""Processes of a fake's jobs, identified by an inherited variable."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from fakes.state import MARK, RANK_MARK

_SLOWEST_END_S = 30
"""Longest time that a killed process may take to end on a loaded machine."""


def list_processes(mark: str, *, ranks: bool = True) -> Iterator[int]:
    """List the ids of the processes whose variable has this value (`mark`).

    A mark that ends with ``:`` matches all marks that begin with it.
    """
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marked = any(
            variable == wanted or (mark.endswith(":") and variable.startswith(wanted)) for variable in variables
        )
        if marked and (ranks or not any(variable.startswith(f"{RANK_MARK}=".encode()) for variable in variables)):
            yield int(entry.name)


def send(mark: str, number: int, *, ranks: bool = True) -> None:
    """Send a signal to all processes with this mark. After SIGKILL, wait until no process is left."""
    deadline = time.monotonic() + _SLOWEST_END_S
    while pids := list(list_processes(mark, ranks=ranks)):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        if number != signal.SIGKILL or time.monotonic() > deadline:
            return
        time.sleep(0.005)
