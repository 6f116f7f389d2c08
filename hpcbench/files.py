"""Reading of untrusted files, and formatting of file names in messages."""

import json
from pathlib import Path
from typing import Any

_MOST = 64 << 20
"""Maximum size in bytes of files to read. No file written by hpcbench is larger."""


def shown_path(path: Path | str) -> str:
    """Format a path for a one-line message. Unprintable paths are escaped."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the mapping in a JSON file. Return None if the file is missing or does not contain a mapping."""
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
    """Return the decompression command for a file, or None if the file is not compressed."""
    with path.open("rb") as stream:
        head = stream.read(8)
    return next((command for magic, command in _MAGIC_NUMBERS.items() if head.startswith(magic)), None)


def exists(path: Path) -> bool:
    """Return whether a file or directory exists. For an invalid name, the result is False."""
    try:
        return path.exists()
    except OSError:
        return False
