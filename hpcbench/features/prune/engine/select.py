"""Selection of the weights that become zero: the weights with the smallest magnitudes in the whole model.

The selection is the same in every layout, because all compared numbers are exact. The bit patterns of magnitudes are
compared as integers. Ranks sum integer counts, and the magnitudes of a neuron or a head are summed as integers. Among
weights with the same magnitude, the weights with the lowest indices in the whole tensor are kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcbench.features.prune.engine.formats import Bits
from hpcbench.features.prune.engine.targets import DIGIT, Target, count_place_bytes

Floats = npt.NDArray[np.float64]
Reduce = Callable[[Floats], None]
"""Function that reduces an array in place over all ranks, with a sum or a maximum."""


@dataclass(frozen=True)
class TargetSlice:
    """Weights of a target that one rank updates.

    Attributes
    ----------
    target
        The parameter.
    held
        Slices of the whole parameter that the rank holds.
    start
        Index of the first weight in the rank's flattened part.
    values
        The weights, [n].
    """

    target: Target
    held: tuple[slice, ...]
    start: int
    values: npt.NDArray[Any]

    def locate(self, which: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the indices of the selected weights in the whole parameter, one array per dim."""
        local = np.unravel_index(which + self.start, [piece.stop - piece.start for piece in self.held])
        return tuple(place + piece.start for place, piece in zip(local, self.held, strict=True))

    def list_units(self) -> npt.NDArray[np.int64]:
        """Return the unit index of each weight, [n]."""
        assert self.target.dim is not None
        return self.locate(np.arange(self.values.size))[self.target.dim] // self.target.span

    def count_following(self, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each selected weight, return the number of weights that come after it in the whole parameter."""
        index: npt.NDArray[np.int64] = np.ravel_multi_index(self.locate(which), self.target.shape)
        return math.prod(self.target.shape) - 1 - index


def get_magnitude_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the bit patterns of the absolute values, which are integers with the same order as the magnitudes."""
    bits: npt.NDArray[Any] = np.abs(values).view({4: np.uint32, 8: np.uint64}[values.itemsize])
    return bits


def select_two_of_four(part: TargetSlice) -> Bits:
    """Return a mask of the two largest values in each group of four neighbors along the input dim.

    Ties are resolved in favor of the lower index.

    Raises
    ------
    ValueError
        A group is split between two ranks.
    """
    if part.start % 4 or part.values.size % 4 or (part.held[-1].stop - part.held[-1].start) % 4:
        raise ValueError(f"{part.target.name}: a group of four adjacent values is split across two ranks")
    order = np.argsort(-np.abs(part.values).reshape(-1, 4), axis=1, kind="stable")
    mask = np.zeros((len(order), 4), np.bool_)
    np.put_along_axis(mask, order[:, :2], True, axis=1)
    return mask.reshape(-1)


def select_largest(
    parts: Sequence[TargetSlice],
    targets: Sequence[Target],
    zeros: Sequence[int],
    *,
    width: int,
    counts: bool,
    total: Reduce,
) -> list[Bits]:
    """Select the weights to keep in each part, so that each target has the given number of zeros (a collective call).

    A distributed radix select finds the threshold byte by byte. For each byte, the histograms of all ranks are summed.
    The first search compares the bit patterns of the magnitudes. Among equal magnitudes, a second search compares the
    number of weights that come after each weight.

    Parameters
    ----------
    targets, zeros
        All targets of the model, and the number of zeros of each target.
    width
        Bytes per weight. Ranks without parts also need this value.
    counts
        Whether this rank counts its parts. The value is False if another rank counts the same weights.
    total
        Function that sums an array in place over all ranks.
    """
    number = {target.name: i for i, target in enumerate(targets)}
    which = [number[part.target.name] for part in parts]
    keys = [get_magnitude_bits(part.values) for part in parts]
    left = np.array(zeros, np.int64)

    def search(candidates: list[npt.NDArray[Any]], nbytes: int) -> npt.NDArray[np.uint64]:
        """For each target, return the key of the last weight that becomes zero, [targets]."""
        nonlocal left
        keys_so_far = np.zeros(len(targets), np.uint64)
        for shift in range(8 * nbytes - 8, -1, -8):
            sums = np.zeros((len(targets), DIGIT))
            for i, key in zip(which, candidates, strict=True) if counts else ():
                high = key >> key.dtype.type(shift)
                same_prefix = high[high >> key.dtype.type(8) == keys_so_far[i].astype(key.dtype)]
                sums[i] += np.bincount(same_prefix & key.dtype.type(DIGIT - 1), minlength=DIGIT)
            total(sums)
            upto = sums.cumsum(axis=1)
            digit = (upto < left[:, None]).sum(axis=1)
            before = np.where(digit, upto[np.arange(len(digit)), digit - 1], 0)
            left = left - before.astype(np.int64)
            keys_so_far = keys_so_far << np.uint64(8) | digit.astype(np.uint64)
        return keys_so_far

    threshold = search(keys, width)
    equal = [np.flatnonzero(key == threshold[i].astype(key.dtype)) for i, key in zip(which, keys, strict=True)]
    last = [part.count_following(same).astype(np.uint64) for part, same in zip(parts, equal, strict=True)]
    place = search(last, count_place_bytes(targets))
    masks = []
    for i, key, same, from_end in zip(which, keys, equal, last, strict=True):
        mask = key >= threshold[i].astype(key.dtype)
        goes = from_end <= place[i] if left[i] else from_end < place[i]
        mask[same[goes]] = False
        masks.append(mask if zeros[i] else np.ones(key.size, np.bool_))
    return masks


def select_largest_units(
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
    """Select the weights to keep in each part, so that each family has `zeros` zero units (a collective call).

    The size of a unit is the sum of the magnitudes of its weights. Each magnitude is rounded down to a multiple of a
    power of two, so the sums are exact in any order.

    Parameters
    ----------
    families
        Names of all families of the model.
    units, weights
        Numbers of units per family and of weights per unit.
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
        sizes[i] += np.bincount(part.list_units(), weights=steps, minlength=units)
    total(sizes)
    is_kept = np.ones((len(families), units), np.bool_)
    for row, of_family in zip(is_kept, sizes, strict=True):
        row[np.lexsort((-np.arange(units), of_family))[:zeros]] = False
    return [is_kept[i][part.list_units()] for i, part in zip(which, parts, strict=True)]
