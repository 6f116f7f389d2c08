"""Assignment of parameters to buckets, used by the engine and by predictions."""

from collections.abc import Iterable
from typing import NamedTuple

ALIGNMENT = 16
"""Piece lengths are multiples of this number of elements, so each piece starts at the beginning of a codec block and
of a cache line."""


class Item(NamedTuple):
    """The properties of a parameter that determine its bucket."""

    nbytes: float
    """Size of the gradient in bytes, in the wire dtype. For a split parameter, the value is the mean over its parts.

    With the mean, all ranks of a tensor-parallel group use the same buckets, even if their parts differ in size.
    Ranks that hold replicas of a parameter then make the same calls in the same order.
    """
    alike: tuple[str, ...]
    """Axes of the tensor grid along which ranks hold the same part of the parameter."""
    alone: bool
    """Whether the parameter has its own bucket (a copy of a tied weight, or a table whose gradient is sent as rows)."""
    ep: int = 1
    """Number of data-parallel ranks that hold different experts, or 1 for a non-expert parameter."""

    @property
    def common(self) -> tuple[tuple[str, ...], int]:
        """Properties that are the same for all parameters of a bucket."""
        return self.alike, self.ep


def fuse(items: Iterable[Item], *, limit_bytes: float) -> list[list[int]]:
    """Fill buckets up to `limit_bytes`, and return the item indices of each bucket.

    Parameters that tensor parallelism splits and parameters that it replicates are in different buckets. Codecs
    encode values in blocks. If a block contained both kinds, each rank would decode the replicated parameters
    differently. For the same reason, a tied weight has its own bucket. A table whose gradient is sent as rows also has
    its own bucket. Expert parameters have separate buckets, because they have different replicas.
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
    """Return the padded length of a bucket of `n` elements that is divided into `pieces` equal pieces."""
    unit = pieces * ALIGNMENT
    return -(-n // unit) * unit
