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
    alike: tuple[str, ...]
    """Axes of the tensor grid along which ranks hold the same part."""
    tied: bool
    """It is one of the two copies of a tied weight."""


def fuse(items: Iterable[Item], *, limit_bytes: float) -> list[list[int]]:
    """Fill buckets up to `limit_bytes`; gives the places of each one's items.

    What tensor parallelism splits and what some of its ranks hold alike lie in different buckets: codecs code values
    in blocks, and a block with both would decode what is alike differently on each rank. A tied weight has a bucket of
    its own for the same reason.
    """
    buckets: list[list[int]] = []
    waiting: dict[tuple[str, ...], list[int]] = {}
    size: dict[tuple[str, ...], float] = {}

    def close(alike: tuple[str, ...]) -> None:
        if waiting.get(alike):
            buckets.append(waiting[alike])
        waiting[alike], size[alike] = [], 0.0

    for place, (nbytes, alike, tied) in enumerate(items):
        if tied:
            buckets.append([place])
            continue
        if size.get(alike, 0.0) + nbytes > limit_bytes or alike not in waiting:
            close(alike)
        waiting[alike].append(place)
        size[alike] += nbytes
    for alike in sorted(waiting, key=lambda axes: (len(axes), axes)):
        close(alike)
    return buckets


def padded(n: int, pieces: int) -> int:
    """Length of a bucket of `n` elements, of which `pieces` equal pieces can be made."""
    unit = pieces * ALIGNMENT
    return -(-n // unit) * unit
