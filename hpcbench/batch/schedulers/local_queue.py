"""What the local scheduler writes down of its queues: ``queues/NUMBER.json``."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict


class Waiting(TypedDict):
    """A job of a queue."""

    id: str
    name: str
    """Under which it was handed in."""
    after: list[str]
    after_any: bool


class Queue(TypedDict):
    """A process that runs jobs one after another."""

    process: dict[str, Any]
    jobs: list[Waiting]


_QUEUE = TypeAdapter(Queue)


def read_queue(path: Path) -> Queue | None:
    """What the file says; None where it is missing or damaged."""
    try:
        return _QUEUE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def queues(root: Path) -> list[tuple[Path, Queue]]:
    """All of a submission that can be read, with their files, in the order in which they were started."""
    paths = [path for path in (root / "queues").glob("*.json") if path.stem.isdecimal()]
    found = ((path, read_queue(path)) for path in sorted(paths, key=lambda path: int(path.stem)))
    return [(path, queue) for path, queue in found if queue is not None]
