"""Files of the local scheduler's queues: ``queues/NUMBER.json``."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict


class Waiting(TypedDict):
    """A pending job in a queue."""

    id: str
    name: str
    """Name under which the job was submitted."""
    after: list[str]
    after_any: bool


class LocalQueue(TypedDict):
    """A queue process that runs jobs sequentially."""

    process: dict[str, Any]
    jobs: list[Waiting]


_QUEUE = TypeAdapter(LocalQueue)


def read_queue(path: Path) -> LocalQueue | None:
    """Read a queue file. Return None if the file is missing or damaged."""
    try:
        return _QUEUE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def queues(root: Path) -> list[tuple[Path, LocalQueue]]:
    """Return the readable queue files of a submission and their contents, in start order."""
    paths = [path for path in (root / "queues").glob("*.json") if path.stem.isdecimal()]
    pairs = ((path, read_queue(path)) for path in sorted(paths, key=lambda path: int(path.stem)))
    return [(path, queue) for path, queue in pairs if queue is not None]
