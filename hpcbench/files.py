"""Reading of files that another program may have written, and names of files in messages."""

import json
from pathlib import Path
from typing import Any

_MOST = 64 << 20
"""Maximum bytes that are read of a file. No file of hpcbench is longer."""


def shown_path(path: Path | str) -> str:
    """Return a path for a message of one line: unchanged if it is printable, else escaped."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the mapping in a JSON file; None if there is no such file, or its content is not a mapping."""
    try:
        with path.open("rb") as stream:
            data = json.loads(stream.read(_MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


_MAGIC_NUMBERS = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\x00": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
}


def decompression(path: Path) -> str | None:
    """Return the command that decompresses a file; None if it is not compressed."""
    with path.open("rb") as stream:
        head = stream.read(8)
    return next((command for magic, command in _MAGIC_NUMBERS.items() if head.startswith(magic)), None)


def exists(path: Path) -> bool:
    """Return whether a file or directory exists. A name that no file system accepts does not exist."""
    try:
        return path.exists()
    except OSError:
        return False
