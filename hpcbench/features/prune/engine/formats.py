"""Mask formats of messages: a bitmap or, for pattern 2:4, two 2-bit indices per group of four.

Both formats use one bit per weight. Invalid masks are rejected, because values would be unpacked to wrong positions.
"""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


class MaskError(ValueError):
    """A received mask is invalid, which means that the sender or the transfer is faulty."""


def pack_bitmap(mask: Bits) -> Bytes:
    """Pack a mask into one bit per value. The first value is stored in the lowest bit."""
    return np.packbits(mask, bitorder="little")


def unpack_bitmap(sent: Bytes, free: Bits) -> Bits:
    """Unpack a mask that was packed with `pack_bitmap`.

    Parameters
    ----------
    free
        Whether each value can be zero, [n]. The mask bits of all other values must be 1.

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
    """Pack the indices of the two kept values of each group of four, 2 bits each. The first index is in the lower bits.

    In groups whose values cannot be zero, both indices are 0.

    Raises
    ------
    MaskError
        A group whose values can be zero keeps more or fewer than two values.
    """
    groups, sparse = _cut_groups(mask, free)
    if (groups[sparse].sum(axis=1) != 2).any():
        raise MaskError("a group of four values does not have exactly two nonzero values")
    codes: Bytes = np.zeros(len(groups), np.uint8)
    places = np.nonzero(groups[sparse])[1].reshape(-1, 2)
    codes[sparse] = places[:, 0] | places[:, 1] << 2
    codes = np.concatenate((codes, np.zeros(len(codes) % 2, np.uint8)))
    sent: Bytes = codes[0::2] | codes[1::2] << np.uint8(4)
    return sent


def unpack_places(sent: Bytes, free: Bits) -> Bits:
    """Unpack a mask that was packed with `pack_places`.

    Raises
    ------
    MaskError
        The two indices of a group are not in ascending order, or are not 0 in a group whose values cannot be zero.
    """
    mask = np.ones(free.size, np.bool_)
    groups, sparse = _cut_groups(mask, free)
    codes = np.stack((sent & 15, sent >> 4), axis=1).reshape(-1)[: len(groups)]
    first, second = codes & 3, codes >> 2
    wrong = np.where(sparse, first >= second, codes != 0)
    if wrong.any():
        raise MaskError(
            f"invalid positions {codes[np.argmax(wrong)]:04b} of the remaining values in group "
            f"{int(np.argmax(wrong))} of four values"
        )
    rows = np.flatnonzero(sparse)
    groups[rows] = False
    groups[rows, first[rows]] = True
    groups[rows, second[rows]] = True
    return groups.reshape(-1)


def _cut_groups(mask: Bits, free: Bits) -> tuple[Bits, Bits]:
    """Divide the mask into groups of four, [n/4, 4], and return for each group whether it can contain zeros, [n/4]."""
    if mask.size % 4:
        raise MaskError(f"{mask.size} values cannot be divided into groups of four")
    by_four = free.reshape(-1, 4)
    sparse: Bits = np.asarray(by_four.any(axis=1))
    if not by_four[sparse].all():
        raise MaskError("only some values of a group of four can be zero")
    return mask.reshape(-1, 4), sparse
