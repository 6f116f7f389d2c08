"""Values as every form of the export can hold them, taken from logs that may hold anything."""

import json
from pathlib import Path
from typing import Any

_LONGEST = 4096
"""Characters of a text: a path may have that many. What stands in every row must end somewhere."""
_LONGEST_JSON = 1 << 20


def plain(words: str | None) -> str | None:
    """Text that every form can hold and every terminal can bear; None where there is none.

    Each character that cannot be printed, line ends among them, becomes U+FFFD.
    """
    if not words:
        return None
    words = words[:_LONGEST]
    return words if words.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in words)


def place(path: Path | str | None) -> str | None:
    """A path, or ``file:line``, that holds wherever it is read; None where there is none."""
    return plain(str(Path(path).absolute())) if path else None


def as_json(value: Any, longest: int = _LONGEST_JSON) -> str | None:
    """A value as JSON in ASCII; None where there is none, or JSON cannot say it, or it has no end."""
    if value is None:
        return None
    try:
        words = json.dumps(value, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return words if len(words) <= longest else None
