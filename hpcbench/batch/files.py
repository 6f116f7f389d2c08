"""Atomic writes of JSON files, and conversion of timestamps."""

import contextlib
import datetime
import json
import os
from pathlib import Path
from typing import Any

from hpcbench.contract import times

now = times.format_now


def seconds(time: object) -> float | None:
    """Convert an ISO 8601 time to seconds since 1970. Return None if the time is invalid or has no time zone."""
    try:
        moment = datetime.datetime.fromisoformat(str(time).replace("Z", "+00:00"))
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def write_json(path: Path, data: Any, *, durable: bool = False) -> None:
    """Write JSON atomically. Readers see either the old file or the new file.

    Parameters
    ----------
    durable
        Whether to flush the file to disk before returning, so that it survives a crash.
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
    """Flush a directory entry. Errors are ignored, because some file systems neither support nor need this."""
    descriptor = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
