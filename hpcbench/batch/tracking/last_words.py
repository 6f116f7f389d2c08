"""How a run ended, in its own words."""

import json
import re
import signal
from pathlib import Path
from typing import Any

_KILLED = re.compile(r"(?:EXIT STRING: .*|KILLED BY SIGNAL.*|exited on )(signal \d+|: \d+)")
"""How MPICH and Open MPI say that a rank died of a signal."""
_WORKER = "hpcbench.train: "
_NOISE = re.compile(
    r"step |\{|=|YOUR APPLICATION|This typically|Please see|\[mpiexec|\[proxy|Abort\(|-----"
    r"|srun: (?!fatal: |error: )|srun: error: \S+: tasks? \S+ (?:Exited with|Terminated)|slurmstepd-\S+: error: \*\*\*"
)
"""Lines that say nothing about why a run failed."""


def exit_words(code: int | None) -> str:
    """An exit status in words."""
    if code is None:
        return "no exit status"
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit {code}" if code != 127 else "exit 127 (command not found)"


def end_event(log: Path) -> dict[str, Any] | None:
    """The log's `end` event, from its last lines; None where it has none."""
    for line in reversed(tail(log)):
        if line.startswith('{"event": "end"'):
            try:
                event = json.loads(line)
            except ValueError:
                return None
            return event if isinstance(event, dict) else None
    return None


def last_words(directory: Path) -> str:
    """The line that best says why a run failed: the worker's own, a launcher's of a signal, or the last error line."""
    errors, log = tail(directory / "err.txt"), tail(directory / "log.txt")
    for line in errors:
        if line.startswith(_WORKER):  # it ends the other ranks, and launchers tell of those afterwards
            return line.removeprefix(_WORKER).strip()
    killed = [match[1] for line in (*errors, *log) if (match := _KILLED.search(line))]
    for lines in (errors, log):
        said = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
        if said and not killed:
            return said[-1]
    return f"a rank was ended by {killed[0]}" if killed else ""


def tail(path: Path, size: int = 65536) -> list[str]:
    """The lines in the last `size` bytes; none where there is no file."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - size))
            return stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
