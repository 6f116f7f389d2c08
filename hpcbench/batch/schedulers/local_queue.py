"""Files of the local scheduler's queues: ``queues/NUMBER.json``."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict


class Waiting(TypedDict):
    """A job of a queue."""

    id: str
    name: str
    """Name that the job was submitted under."""
    after: list[str]
    after_any: bool


class LocalQueue(TypedDict):
    """A process that runs jobs one after another."""

    process: dict[str, Any]
    jobs: list[Waiting]


_QUEUE = TypeAdapter(LocalQueue)


def read_queue(path: Path) -> LocalQueue | None:
    """Read a queue's file; None if it is missing or damaged."""
    try:
        return _QUEUE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def queues(root: Path) -> list[tuple[Path, LocalQueue]]:
    """Return the readable queues of a submission with their files, in the order of their start."""
    paths = [path for path in (root / "queues").glob("*.json") if path.stem.isdecimal()]
    pairs = ((path, read_queue(path)) for path in sorted(paths, key=lambda path: int(path.stem)))
    return [(path, queue) for path, queue in pairs if queue is not None]
