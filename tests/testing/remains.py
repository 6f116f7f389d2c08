"""Processes that remain in namespaces after the process that created them has ended."""

from pathlib import Path


def marked(mark: str) -> dict[str, str]:
    """Return the name by id of each process that inherited the mark. Dead processes and zombies have no environment."""
    processes = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                processes[process.name] = (process / "comm").read_text().strip()
        except OSError:
            continue  # the process has ended
    return processes
