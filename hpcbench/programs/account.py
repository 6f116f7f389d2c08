"""Counts of one rank's calls by group, operation, type and codec. They are written to a file when the rank ends."""

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpcbench.comm.counts import MessageCounts
from hpcbench.comm.memory import Tally


class Key(NamedTuple):
    """Properties of the calls that are counted together."""

    group: str
    """Description of the group."""
    ranks: int
    dimension: str
    call: str
    dtype: str
    codec: str
    """Codec; empty if the calls were not encoded."""
    why: str
    """Reason why the calls were not encoded."""


@dataclass
class CallCounts(MessageCounts):
    """Counts of the calls of one kind on this rank, and of the messages of those that were encoded."""

    calls: int = 0
    call_bytes: int = 0
    """Bytes of the tensors that were given to the calls."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Number of calls for each number of elements."""


_SIZES = 512
"""Number of different sizes that a row remembers."""


class Account:
    """Counts of one rank's calls."""

    def __init__(self) -> None:
        self.rows: dict[Key, CallCounts] = {}
        self.rank, self.world = 0, 1
        self._lock = threading.Lock()

    def row(self, key: Key) -> CallCounts:
        """Return the row of a key."""
        with self._lock:
            return self.rows.setdefault(key, CallCounts())

    def call(self, row: CallCounts, n: int, nbytes: int) -> None:
        """Count a call."""
        with self._lock:
            row.calls += 1
            row.call_bytes += nbytes
            if n in row.sizes or len(row.sizes) < _SIZES:
                row.sizes[n] = row.sizes.get(n, 0) + 1

    def sent(self, row: CallCounts, tally: Tally) -> None:
        """Count what an encoded call sent."""
        with self._lock:
            row.add_messages(tally)

    def add_times(self, row: CallCounts, tally: Tally) -> None:
        """Add the codec's time in an encoded call, which a GPU reports only after the call."""
        with self._lock:
            row.encode_s += tally.encode_s
            row.decode_s += tally.decode_s

    def document(self) -> list[dict[str, object]]:
        """Return the rows that have calls, for a file."""
        with self._lock:
            return [{**key._asdict(), **asdict(row)} for key, row in self.rows.items() if row.calls]

    def write(self, directory: Path) -> None:
        """Write the file of this rank. A process that made no calls, such as a launcher, writes none."""
        if not self.rows:
            return
        directory.mkdir(parents=True, exist_ok=True)
        document = {"rank": self.rank, "world": self.world, "rows": self.document()}
        there = directory / f"rank-{self.rank}.json"
        part = there.with_suffix(".part")
        part.write_text(json.dumps(document) + "\n", encoding="utf-8")
        part.replace(there)  # readers never see a partial file
