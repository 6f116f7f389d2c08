"""How a mask travels to a rank that does not know it: a bitmap, or the two places of each four in 2 bits each.

With the values that follow it, in order, a message says all by itself. Where both ends know the mask only the values
travel. Either form takes one bit for each weight. Every mask that no sender makes is refused, because values would
land in wrong places.
"""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


class MaskError(ValueError):
    """A mask that no sender makes."""


def to_bitmap(kept: Bits) -> Bytes:
    """Return one bit for each value, the first value in the lowest bit."""
    return np.packbits(kept, bitorder="little")


def from_bitmap(sent: Bytes, free: Bits) -> Bits:
    """Return the mask of a bitmap.

    Parameters
    ----------
    free
        [n], the values that can be zero. The bits of all others must be 1.

    Raises
    ------
    MaskError
        A value that is never zero is left out.
    """
    kept = np.unpackbits(sent, count=free.size, bitorder="little").view(np.bool_)
    if not (kept | free).all():
        raise MaskError(f"value {int(np.argmin(kept | free))} is left out, which is never zero")
    return kept


def to_places(kept: Bits, free: Bits) -> Bytes:
    """Return the places of the two kept values of each four, 2 bits each, the first in the lower bits.

    Groups of values that cannot be zero have 0 for both.

    Raises
    ------
    MaskError
        A group of values that can be zero keeps another number of them than two.
    """
    groups, sparse = _groups(kept, free)
    if (groups[sparse].sum(axis=1) != 2).any():
        raise MaskError("a group of four keeps another number of values than two")
    codes = np.zeros(len(groups), np.uint8)
    places = np.nonzero(groups[sparse])[1].reshape(-1, 2)
    codes[sparse] = places[:, 0] | places[:, 1] << 2
    codes = np.concatenate((codes, np.zeros(len(codes) % 2, np.uint8)))
    sent: Bytes = codes[0::2] | codes[1::2] << np.uint8(4)
    return sent


def from_places(sent: Bytes, free: Bits) -> Bits:
    """Return the mask of `to_places`.

    Raises
    ------
    MaskError
        Two places of a group are equal or not in order, or a group that is never zero has places.
    """
    kept = np.ones(free.size, np.bool_)
    groups, sparse = _groups(kept, free)
    codes = np.stack((sent & 15, sent >> 4), axis=1).reshape(-1)[: len(groups)]
    first, second = codes & 3, codes >> 2
    wrong = np.where(sparse, first >= second, codes != 0)
    if wrong.any():
        raise MaskError(f"the places of group {int(np.argmax(wrong))} of four are {codes[np.argmax(wrong)]:04b}")
    rows = np.flatnonzero(sparse)
    groups[rows] = False
    groups[rows, first[rows]] = True
    groups[rows, second[rows]] = True
    return groups.reshape(-1)


def _groups(kept: Bits, free: Bits) -> tuple[Bits, Bits]:
    """Return the values by four, [n/4, 4], and which groups can have zeros."""
    if kept.size % 4:
        raise MaskError(f"{kept.size} values are no groups of four")
    by_four = free.reshape(-1, 4)
    sparse: Bits = np.asarray(by_four.any(axis=1))
    if not by_four[sparse].all():
        raise MaskError("a group of four has values that can be zero beside others")
    return kept.reshape(-1, 4), sparse
