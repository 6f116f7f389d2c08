"""The recorded clocks of a parameter server: one file per shard in the run's directory.

A file has one object per line. The first one describes the file, and every other one is a pull or a push, in the order
in which the shard served them. A run that continues appends another part, which begins with such a first line.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.parallel.server import ServerShard

DIRECTORY = "clocks"
"""Directory of the files, below the run's directory."""


def lines(shard: ServerShard, *, place: int, sync: str, began: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a shard.

    Parameters
    ----------
    shard
        Shard with the pulls and pushes.
    place
        Its number.
    sync
        Synchronization of the replicas (BSP, SSP or ASP).
    began
        Pushes of each worker before the first entry.
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
    """Write the file of a shard, or add to it if the run has continued.

    Parameters
    ----------
    directory
        For the files of all shards; it is made if it is missing.
    shard, place, sync, began
        As for `lines`.

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
