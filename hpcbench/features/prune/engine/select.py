"""Which weights become zero: those of smallest magnitude in the whole model's tensors, whichever ranks hold them.

Every layout makes the same choice, because each number that decides is exact: magnitudes are compared as the integers
that their bits are, ranks add up counts, and sums of a neuron's or a head's magnitudes are sums of integers. Of equal
magnitudes those that come first in the whole tensor are kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcbench.features.prune.engine.formats import Bits
from hpcbench.features.prune.engine.targets import DIGIT, Target, place_bytes

Floats = npt.NDArray[np.float64]
Reduce = Callable[[Floats], None]
"""Adds up an array over all ranks in place, or takes the largest values."""


@dataclass(frozen=True)
class TargetSlice:
    """Weights of a target that one rank updates.

    Attributes
    ----------
    target
        The parameter.
    held
        The rank's slices of the whole parameter.
    start
        The first weight in the rank's part, flattened.
    values
        The weights, flat.
    """

    target: Target
    held: tuple[slice, ...]
    start: int
    values: npt.NDArray[Any]

    def places(self, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the places of some of the weights in the whole parameter, by dim."""
        local = np.unravel_index(which + self.start, [piece.stop - piece.start for piece in self.held])
        return tuple(place + piece.start for place, piece in zip(local, self.held, strict=True))

    def units(self) -> npt.NDArray[np.int64]:
        """Return the unit of each weight."""
        assert self.target.dim is not None
        return self.places(np.arange(self.values.size))[self.target.dim] // self.target.span

    def from_the_end(self, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many weights of the whole parameter come after each."""
        index: npt.NDArray[np.int64] = np.ravel_multi_index(self.places(which), self.target.shape)
        return math.prod(self.target.shape) - 1 - index


def magnitude_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the order of the magnitudes."""
    bits: npt.NDArray[Any] = np.abs(values).view({4: np.uint32, 8: np.uint64}[values.itemsize])
    return bits


def two_of_four(part: TargetSlice) -> Bits:
    """Return the two largest of each four neighbours along the inputs; of equal ones the earlier.

    Raises
    ------
    ValueError
        A group lies on two ranks.
    """
    if part.start % 4 or part.values.size % 4 or (part.held[-1].stop - part.held[-1].start) % 4:
        raise ValueError(f"{part.target.name}: a group of four neighbours lies on two ranks")
    order = np.argsort(-np.abs(part.values).reshape(-1, 4), axis=1, kind="stable")
    kept = np.zeros((len(order), 4), np.bool_)
    np.put_along_axis(kept, order[:, :2], True, axis=1)
    return kept.reshape(-1)


def largest_of_each(
    parts: Sequence[TargetSlice],
    targets: Sequence[Target],
    zeros: Sequence[int],
    *,
    width: int,
    counts: bool,
    total: Reduce,
) -> list[Bits]:
    """Return the weights of each part that are kept, if so many of each target are not. All ranks call it together.

    The threshold is found byte by byte: ranks add up how many weights have each value of the next byte, first of the
    magnitudes' bits and then, among equal magnitudes, of their places from the end.

    Parameters
    ----------
    targets, zeros
        All targets of the model, and for each the number of weights that become zero.
    width
        Bytes of a weight, on ranks without parts, too.
    counts
        Whether the rank's parts count: another rank may count the same weights.
    total
        Adds up over the ranks.
    """
    number = {target.name: i for i, target in enumerate(targets)}
    which = [number[part.target.name] for part in parts]
    keys = [magnitude_bits(part.values) for part in parts]
    left = np.array(zeros, np.int64)

    def search(candidates: list[npt.NDArray[Any]], nbytes: int) -> npt.NDArray[np.uint64]:
        """Return the key of the last weight that becomes zero, of each target."""
        nonlocal left
        found = np.zeros(len(targets), np.uint64)
        for shift in range(8 * nbytes - 8, -1, -8):
            sums = np.zeros((len(targets), DIGIT))
            for i, key in zip(which, candidates, strict=True) if counts else ():
                high = key >> key.dtype.type(shift)
                alike = high[high >> key.dtype.type(8) == found[i].astype(key.dtype)]
                sums[i] += np.bincount(alike & key.dtype.type(DIGIT - 1), minlength=DIGIT)
            total(sums)
            upto = sums.cumsum(axis=1)
            digit = (upto < left[:, None]).sum(axis=1)
            before = np.where(digit, upto[np.arange(len(digit)), digit - 1], 0)
            left = left - before.astype(np.int64)
            found = found << np.uint64(8) | digit.astype(np.uint64)
        return found

    threshold = search(keys, width)
    equal = [np.flatnonzero(key == threshold[i].astype(key.dtype)) for i, key in zip(which, keys, strict=True)]
    last = [part.from_the_end(same).astype(np.uint64) for part, same in zip(parts, equal, strict=True)]
    place = search(last, place_bytes(targets))
    kept = []
    for i, key, same, from_end in zip(which, keys, equal, last, strict=True):
        mask = key >= threshold[i].astype(key.dtype)
        goes = from_end <= place[i] if left[i] else from_end < place[i]
        mask[same[goes]] = False
        kept.append(mask if zeros[i] else np.ones(key.size, np.bool_))
    return kept


def largest_units(
    parts: Sequence[TargetSlice],
    families: Sequence[str],
    *,
    units: int,
    zeros: int,
    weights: int,
    counts: bool,
    total: Reduce,
    largest: Reduce,
) -> list[Bits]:
    """The weights of each part that are kept, if so many units of each family are not. All ranks call it together.

    A unit's size is the sum of its weights' magnitudes, each rounded down to a multiple of a power of two, so that
    sums are exact and depend on no order.

    Parameters
    ----------
    families
        All families of the model.
    units, weights
        Units of a family, and weights of a unit.
    """
    number = {family: i for i, family in enumerate(families)}
    which = [number[part.target.family] for part in parts]
    tops = np.zeros(len(families))
    for i, part in zip(which, parts, strict=True):
        tops[i] = max(tops[i], np.abs(part.values).max(initial=0))
    largest(tops)
    bits = 52 - weights.bit_length()
    scale = np.ldexp(1.0, bits - np.frexp(tops)[1])
    sizes = np.zeros((len(families), units))
    for i, part in zip(which, parts, strict=True) if counts else ():
        steps = np.floor(np.abs(part.values).astype(np.float64) * scale[i])
        sizes[i] += np.bincount(part.units(), weights=steps, minlength=units)
    total(sizes)
    kept = np.ones((len(families), units), np.bool_)
    for row, of_family in zip(kept, sizes, strict=True):
        row[np.lexsort((-np.arange(units), of_family))[:zeros]] = False
    return [kept[i][part.units()] for i, part in zip(which, parts, strict=True)]
