"""Call counts of one rank by group, operation, dtype and codec.

The counts are written to a file when the rank exits.
"""

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpcbench.comm.counts import MessageCounts
from hpcbench.comm.memory import Tally


class Key(NamedTuple):
    """Properties of calls that are counted together."""

    group: str
    """Group description."""
    ranks: int
    dimension: str
    call: str
    dtype: str
    codec: str
    """Codec, or an empty string if the calls were not encoded."""
    why: str
    """Why the calls were not encoded."""


@dataclass
class CallCounts(MessageCounts):
    """Counts of calls with the same properties on this rank, and of the messages of encoded calls."""

    calls: int = 0
    call_bytes: int = 0
    """Bytes of the tensors passed to the calls."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Number of calls for each element count."""


_SIZES = 512
"""Maximum number of distinct sizes recorded per row."""


class Account:
    """Call counts of one rank."""

    def __init__(self) -> None:
        self.rows: dict[Key, CallCounts] = {}
        self.rank, self.world = 0, 1
        self._lock = threading.Lock()

    def row(self, key: Key) -> CallCounts:
        """Return the row of a key."""
        with self._lock:
            return self.rows.setdefault(key, CallCounts())

    def call(self, row: CallCounts, n: int, nbytes: int) -> None:
        """Count a call with `n` elements and `nbytes` bytes."""
        with self._lock:
            row.calls += 1
            row.call_bytes += nbytes
            if n in row.sizes or len(row.sizes) < _SIZES:
                row.sizes[n] = row.sizes.get(n, 0) + 1

    def sent(self, row: CallCounts, tally: Tally) -> None:
        """Add the counts of an encoded call's messages."""
        with self._lock:
            row.add_messages(tally)

    def add_times(self, row: CallCounts, tally: Tally) -> None:
        """Add the codec times of an encoded call. On a GPU, the times are available only after the call."""
        with self._lock:
            row.encode_s += tally.encode_s
            row.decode_s += tally.decode_s

    def document(self) -> list[dict[str, object]]:
        """Return all rows with calls in JSON-compatible form."""
        with self._lock:
            return [{**key._asdict(), **asdict(row)} for key, row in self.rows.items() if row.calls]

    def write(self, directory: Path) -> None:
        """Write this rank's file. Processes without calls, such as launchers, do not write a file."""
        if not self.rows:
            return
        directory.mkdir(parents=True, exist_ok=True)
        document = {"rank": self.rank, "world": self.world, "rows": self.document()}
        there = directory / f"rank-{self.rank}.json"
        part = there.with_suffix(".part")
        part.write_text(json.dumps(document) + "\n", encoding="utf-8")
        part.replace(there)  # atomic for readers
