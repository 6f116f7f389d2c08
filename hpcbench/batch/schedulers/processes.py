"""Termination of process trees, and identification of processes by id and start time, because ids are reused."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple


def identity(pid: int) -> dict[str, Any] | None:
    """Return a process identity that is unique even if the id is reused, or None if the process does not exist.

    Zombies count as existing.
    """
    fields = _stat(pid)
    return (
        None if fields is None else {"pid": pid, "start": fields.start, "host": socket.gethostname(), "boot": _boot()}
    )


def here(process: dict[str, Any]) -> bool:
    """Return whether the process was started on this machine, so that it can be looked up here."""
    return bool(process.get("host") == socket.gethostname())


def alive(process: dict[str, Any] | None) -> bool:
    """Return whether this exact process is still running. Zombies do not count as running."""
    if process is None or type(process.get("pid")) is not int or process != identity(process["pid"]):
        return False
    fields = _stat(process["pid"])
    return fields is not None and fields.state not in "ZX"


def end_tree(process: dict[str, Any], *, grace: float) -> None:
    """Terminate a process, its descendants, and all processes in its session.

    The process itself is signaled first, so that it can end its children and write its status files. After the process
    has ended, or after `grace` seconds, all remaining processes are killed.
    """
    members = {process["pid"]: process, **_family(process)}
    _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and alive(process):
        time.sleep(0.05)
        members |= _family(process)
    for member in (members | _family(process)).values():
        _signal(member, signal.SIGKILL)


def _signal(process: dict[str, Any], number: signal.Signals) -> None:
    if alive(process):
        try:
            os.kill(process["pid"], number)
        except ProcessLookupError:
            return


def _family(process: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return descendants of the process, and members of its session, which may be orphans."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    table = {pid: fields for pid in pids if (fields := _stat(pid))}
    family = {process["pid"]} if alive(process) else set()
    grown = True
    while grown:
        more = {pid for pid, stat in table.items() if stat.parent in family or stat.session == process["pid"]}
        grown = not more <= family
        family |= more
    family -= {process["pid"], os.getpid()}
    return {pid: member for pid in family if (member := identity(pid))}


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    start: int
    """Start time in clock ticks since boot."""


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the preceding name may contain blanks and parentheses
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
