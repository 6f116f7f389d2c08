"""The choice of parameters that share a bucket, for the engine and its predictions. Pure functions."""

from collections.abc import Iterable
from typing import NamedTuple

ALIGNMENT = 16
"""Pieces are multiples of this number of elements, so that they begin on a codec's block and on a cache line."""


class Item(NamedTuple):
    """The properties of a parameter that decide on its bucket."""

    nbytes: float
    """Bytes of the gradient in wire dtype; for a split parameter, the mean of its parts.

    So all ranks of a tensor group cut the same buckets, whichever holds more, and replicas over the group make the
    same calls in the same order.
    """
    alike: tuple[str, ...]
    """Axes of the tensor grid along which ranks hold the same part."""
    alone: bool
    """Whether it has a bucket of its own: one of the two copies of a tied weight, or a table that is sent by rows."""
    ep: int = 1
    """Number of data-parallel ranks that hold different experts in its place; 1 if it is of no expert."""

    @property
    def common(self) -> tuple[tuple[str, ...], int]:
        """The properties that all parameters of a bucket share."""
        return self.alike, self.ep


def fuse(items: Iterable[Item], *, limit_bytes: float) -> list[list[int]]:
    """Fill buckets up to `limit_bytes`, and return the indices of each bucket's items.

    Parameters that tensor parallelism splits and parameters that its ranks replicate are in different buckets. Codecs
    encode values in blocks, and a block with both would decode the replicated parameters differently on each rank. A
    tied weight has its own bucket for the same reason, and so has a table whose rows are sent by their indices.
    Parameters of experts have different replicas.
    """
    buckets: list[list[int]] = []
    waiting: dict[tuple[tuple[str, ...], int], list[int]] = {}
    size: dict[tuple[tuple[str, ...], int], float] = {}

    def close(common: tuple[tuple[str, ...], int]) -> None:
        if waiting.get(common):
            buckets.append(waiting[common])
        waiting[common], size[common] = [], 0.0

    for place, item in enumerate(items):
        if item.alone:
            buckets.append([place])
            continue
        common = item.common
        if size.get(common, 0.0) + item.nbytes > limit_bytes or common not in waiting:
            close(common)
        waiting[common].append(place)
        size[common] += item.nbytes
    for common in sorted(waiting, key=lambda shared: (shared[1], len(shared[0]), shared[0])):
        close(common)
    return buckets


def padded(n: int, pieces: int) -> int:
    """Return the length of a bucket of `n` elements with padding for `pieces` equal pieces."""
    unit = pieces * ALIGNMENT
    return -(-n // unit) * unit
