"""The elements of a whole tensor that a rank has, and copies between the cuts of two layouts.

Layouts cut a tensor twice: tensor parallelism holds a box of it, and ZeRO a run of that box laid out row by row. The
common elements of two such cuts are boxes again. So a few slice assignments copy a part of one layout to a part of
another.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

Bounds = tuple[tuple[int, int], ...]
"""First element and the one after the last, for each dim."""


@dataclass(frozen=True)
class Extent:
    """A run of a box of a tensor.

    Attributes
    ----------
    box
        Bounds of the box in the whole tensor.
    start, length
        First element and number of elements of the run, in the box laid out row by row.
    """

    box: Bounds
    start: int
    length: int

    @classmethod
    def of(cls, held: tuple[slice, ...], start: int = 0, length: int | None = None) -> "Extent":
        """Return the extent of a run of the slices of a tensor; without a length, of all elements from `start` on."""
        box = tuple((part.start, part.stop) for part in held)
        return cls(box, start, _volume(box) - start if length is None else length)

    def boxes(self) -> Iterator[tuple[int, Bounds]]:
        """Yield the boxes that the run is made of, with the place of each one's first element in the run."""
        shape = tuple(stop - start for start, stop in self.box)
        place = 0
        for inner in _boxes(shape, self.start, self.start + self.length):
            yield place, tuple((o + a, o + b) for (o, _), (a, b) in zip(self.box, inner, strict=True))
            place += _volume(inner)


def copy(target: Tensor, to: Extent, source: Tensor, of: Extent) -> int:
    """Copy the common elements of two parts of a tensor.

    Parameters
    ----------
    target, source
        The parts' elements, [to.length] and [of.length].
    to, of
        The extents of the two parts.

    Returns
    -------
    Number of elements that were copied.
    """
    copied = 0
    for (place, outer), (origin, inner) in _pairs(to, of):
        common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(outer, inner, strict=True))
        if all(a < b for a, b in common):
            _window(target, place, outer, common).copy_(_window(source, origin, inner, common))
            copied += _volume(common)
    return copied


def meet(extent: Extent, other: Extent) -> bool:
    """Return whether the boxes, and so perhaps the runs, have common elements."""
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(extent.box, other.box, strict=True))


def _pairs(to: Extent, of: Extent) -> Iterator[tuple[tuple[int, Bounds], tuple[int, Bounds]]]:
    if meet(to, of):
        others = list(of.boxes())
        for box in to.boxes():
            yield from ((box, other) for other in others)


def _window(flat: Tensor, place: int, box: Bounds, part: Bounds) -> Tensor:
    """Return the view of `part` in a box whose elements lie in `flat` from `place` on."""
    shape = [stop - start for start, stop in box]
    values = flat[place : place + math.prod(shape)].view(shape)
    return values[tuple(slice(a - start, b - start) for (start, _), (a, b) in zip(box, part, strict=True))]


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Bounds]:
    """Yield boxes that hold elements `start` up to `stop` of an array laid out row by row, in that order."""
    if start >= stop:
        return
    if len(shape) == 1:
        yield ((start, stop),)
        return
    row = math.prod(shape[1:])
    first, last = -(-start // row), stop // row  # whole rows
    if first > last:  # within one row
        for inner in _boxes(shape[1:], start - last * row, stop - last * row):
            yield ((last, first), *inner)
        return
    for inner in _boxes(shape[1:], start - (first - 1) * row, row):
        yield ((first - 1, first), *inner)
    if first < last:
        yield ((first, last), *((0, size) for size in shape[1:]))
    for inner in _boxes(shape[1:], 0, stop - last * row):
        yield ((last, last + 1), *inner)


def _volume(box: Bounds) -> int:
    return math.prod(stop - start for start, stop in box)
