"""Files that are there whole or not at all, and times as every file here says them."""

import datetime
import json
import os
from pathlib import Path
from typing import Any


def now() -> str:
    """The time in UTC, ``2026-11-21T06:30:00Z``."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in the file; None where there is no such file, or it is no JSON mapping."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
