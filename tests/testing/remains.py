"""Processes that remain in namespaces after the process that created them has ended."""

from pathlib import Path


def marked(mark: str) -> dict[str, str]:
    """Return the names of processes that inherited the mark, by process id.

    Dead processes and zombies have no environment.
    """
    processes = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                processes[process.name] = (process / "comm").read_text().strip()
        except OSError:
            continue  # the process has ended
    return processes
