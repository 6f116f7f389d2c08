"""Formats of masks in messages: a bitmap, or for pattern 2:4 the two places of each group of four in 2 bits each.

Both formats take one bit per weight. An invalid mask is refused, because values would be put in wrong places.
"""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


class MaskError(ValueError):
    """An invalid mask, which no sender creates."""


def pack_bitmap(mask: Bits) -> Bytes:
    """Pack a mask into one bit per value, with the first value in the lowest bit."""
    return np.packbits(mask, bitorder="little")


def unpack_bitmap(sent: Bytes, free: Bits) -> Bits:
    """Unpack the mask of `pack_bitmap`.

    Parameters
    ----------
    free
        [n], whether each value can be zero. The bits of all others must be 1.

    Raises
    ------
    MaskError
        A value that cannot be zero is masked.
    """
    mask = np.unpackbits(sent, count=free.size, bitorder="little").view(np.bool_)
    if not (mask | free).all():
        raise MaskError(f"value {int(np.argmin(mask | free))} is masked, but cannot be zero")
    return mask


def pack_places(mask: Bits, free: Bits) -> Bytes:
    """Pack the places of the two kept values of each group of four, 2 bits each, the first in the lower bits.

    Both places are 0 in groups of values that cannot be zero.

    Raises
    ------
    MaskError
        A group of values that can be zero does not keep exactly two of them.
    """
    groups, sparse = _cut_groups(mask, free)
    if (groups[sparse].sum(axis=1) != 2).any():
        raise MaskError("a group of four does not keep exactly two values")
    codes = np.zeros(len(groups), np.uint8)
    places = np.nonzero(groups[sparse])[1].reshape(-1, 2)
    codes[sparse] = places[:, 0] | places[:, 1] << 2
    codes = np.concatenate((codes, np.zeros(len(codes) % 2, np.uint8)))
    sent: Bytes = codes[0::2] | codes[1::2] << np.uint8(4)
    return sent


def unpack_places(sent: Bytes, free: Bits) -> Bits:
    """Unpack the mask of `pack_places`.

    Raises
    ------
    MaskError
        Two places of a group are equal or not in order, or a group that cannot be zero has places.
    """
    mask = np.ones(free.size, np.bool_)
    groups, sparse = _cut_groups(mask, free)
    codes = np.stack((sent & 15, sent >> 4), axis=1).reshape(-1)[: len(groups)]
    first, second = codes & 3, codes >> 2
    wrong = np.where(sparse, first >= second, codes != 0)
    if wrong.any():
        raise MaskError(
            f"invalid places {codes[np.argmax(wrong)]:04b} of the kept values in group {int(np.argmax(wrong))} of four"
        )
    rows = np.flatnonzero(sparse)
    groups[rows] = False
    groups[rows, first[rows]] = True
    groups[rows, second[rows]] = True
    return groups.reshape(-1)


def _cut_groups(mask: Bits, free: Bits) -> tuple[Bits, Bits]:
    """Return the mask by groups of four, [n/4, 4], and whether each group can have zeros, [n/4]."""
    if mask.size % 4:
        raise MaskError(f"{mask.size} values cannot be cut into groups of four")
    by_four = free.reshape(-1, 4)
    sparse: Bits = np.asarray(by_four.any(axis=1))
    if not by_four[sparse].all():
        raise MaskError("a group of four mixes values that can be zero with others")
    return mask.reshape(-1, 4), sparse
