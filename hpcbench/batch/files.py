"""Files that are there whole or not at all, and times as every file here says them."""

import contextlib
import datetime
import json
import os
from pathlib import Path
from typing import Any

from hpcbench.contract import times

now = times.format_now


def seconds(time: object) -> float | None:
    """Such a time in seconds since 1970; None where it is none."""
    try:
        found = datetime.datetime.fromisoformat(str(time).replace("Z", "+00:00"))
        return found.timestamp() if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def write_json(path: Path, data: Any, *, durable: bool = False) -> None:
    """Write JSON atomically: a reader sees the old file or the new one.

    Parameters
    ----------
    durable
        Return only when the disk, or the file server, has it: what a crash of this machine must not undo.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(json.dumps(data, indent=1) + "\n")
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Its entries too; some file systems cannot, and need not."""
    descriptor = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
