"""Files that somebody else may have written, and how messages name them."""

import json
from pathlib import Path
from typing import Any

_MOST = 64 << 20
"""Bytes that are read of a file: none of ours is as long."""


def shown_path(path: Path | str) -> str:
    """A path as it is where it is printable, else escaped, so that a message stays one line."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in the file; None where there is no such file, or it is no JSON mapping."""
    try:
        with path.open("rb") as stream:
            data = json.loads(stream.read(_MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def exists(path: Path) -> bool:
    """Whether something lies there; a name that no file system takes is one that nothing has."""
    try:
        return path.exists()
    except OSError:
        return False
