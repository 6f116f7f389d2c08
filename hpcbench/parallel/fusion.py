"""Which parameters share a bucket, for the engine and for what is predicted of it. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

ALIGNMENT = 16
"""Elements: pieces begin on a codec's block and on a cache line."""


class Item(NamedTuple):
    """What of a parameter decides on its bucket."""

    nbytes: float
    """Of its gradient in wire dtype: of a split one the mean of its parts, so that all ranks of a tensor group cut the
    same buckets, whichever holds more. Replicas over the group must make the same calls in the same order."""
    split: bool
    """The ranks of the tensor group hold different parts."""
    tied: bool
    """It is one of the two copies of a tied weight."""


def fuse(items: Iterable[Item], *, limit_bytes: float) -> list[list[int]]:
    """Fill buckets up to `limit_bytes`; gives the places of each one's items.

    What tensor parallelism splits and what each of its ranks holds whole lie in different buckets: codecs code values
    in blocks, and a block with both would decode the whole ones differently on each rank. A tied weight has a bucket
    of its own for the same reason.
    """
    buckets: list[list[int]] = []
    waiting: dict[bool, list[int]] = {False: [], True: []}
    size = {False: 0.0, True: 0.0}

    def close(split: bool) -> None:
        if waiting[split]:
            buckets.append(waiting[split])
        waiting[split], size[split] = [], 0.0

    for place, (nbytes, split, tied) in enumerate(items):
        if tied:
            buckets.append([place])
            continue
        if size[split] + nbytes > limit_bytes:
            close(split)
        waiting[split].append(place)
        size[split] += nbytes
    close(True)
    close(False)
    return buckets


def padded(n: int, pieces: int) -> int:
    """Length of a bucket of `n` elements, of which `pieces` equal pieces can be made."""
    unit = pieces * ALIGNMENT
    return -(-n // unit) * unit
