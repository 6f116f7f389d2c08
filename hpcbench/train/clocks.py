"""Recorded clocks of a parameter server, with one file per shard in the run directory.

A file contains one JSON object per line. The first object describes the file. All other objects are pulls or pushes, in
the order in which the shard served them. A resumed run appends another section with its own description.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.parallel.server import ServerShard

DIRECTORY = "clocks"
"""Directory of the files, relative to the run directory."""


def lines(shard: ServerShard, *, place: int, sync: str, began: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a shard's file.

    Parameters
    ----------
    shard
        Shard that has recorded the pulls and pushes.
    place
        Index of the shard.
    sync
        Synchronization of the replicas (BSP, SSP or ASP).
    began
        Number of pushes of each worker before the first entry.
    """
    about = {
        "shard": place,
        "sync": sync,
        "bound": shard.bound,
        "workers": shard.workers,
        "clocks": list(began),
        "updates": sum(began) // shard.workers,
        "entries": len(shard.trace),
        "left_out": shard.left_out,
    }
    yield json.dumps(about)
    for entry in shard.trace:
        yield json.dumps(entry._asdict())


def write(directory: Path, shard: ServerShard, *, place: int, sync: str, began: Sequence[int]) -> None:
    """Write the file of a shard. A resumed run appends to the file.

    Parameters
    ----------
    directory
        Directory of the files, which is created if it does not exist.
    shard, place, sync, began
        See `lines`.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    path = directory / f"shard-{place}.jsonl"
    try:
        directory.mkdir(exist_ok=True)
        with path.open("a" if any(began) else "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines(shard, place=place, sync=sync, began=began))
    except OSError as error:
        raise UserError(f"{path}: the clocks cannot be written: {error.strerror}") from None
