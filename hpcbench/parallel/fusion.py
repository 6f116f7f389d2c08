"""Which parameters share a bucket, for the engine and for predictions of it. Pure functions."""

from collections.abc import Iterable
from typing import NamedTuple

ALIGNMENT = 16
"""Number of elements that pieces are multiples of: pieces begin on a codec's block and on a cache line."""


class Item(NamedTuple):
    """The properties of a parameter that decide on its bucket."""

    nbytes: float
    """Bytes of the gradient in wire dtype; for a split parameter, the mean of its parts.

    So all ranks of a tensor group cut the same buckets, whichever holds more, and replicas over the group make the
    same calls in the same order.
    """
    alike: tuple[str, ...]
    """Axes of the tensor grid along which ranks hold the same part."""
    tied: bool
    """Whether it is one of the two copies of a tied weight."""


def fuse(items: Iterable[Item], *, limit_bytes: float) -> list[list[int]]:
    """Fill buckets up to `limit_bytes`. The result is the indices of each bucket's items.

    Parameters that tensor parallelism splits and parameters that its ranks hold alike lie in different buckets. Codecs
    code values in blocks, and a block with both would decode the equal parameters differently on each rank. A tied
    weight has its own bucket for the same reason.
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
    """Length of a bucket of `n` elements with padding for `pieces` equal pieces."""
    unit = pieces * ALIGNMENT
    return -(-n // unit) * unit
