"""Elements of a whole tensor that a rank holds, and copies between two layouts.

A tensor is cut twice: tensor parallelism selects a box, and ZeRO selects a contiguous range of the box in row-major
order. The intersection of two such parts consists of boxes, so a few slice assignments copy one part to another.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

Bounds = tuple[tuple[int, int], ...]
"""Start and stop index of each dim."""


@dataclass(frozen=True)
class Extent:
    """A contiguous range of elements in a box of a tensor.

    Attributes
    ----------
    box
        Bounds of the box in the whole tensor.
    start, length
        First element and number of elements of the range, in row-major order of the box.
    """

    box: Bounds
    start: int
    length: int

    @classmethod
    def of(cls, held: tuple[slice, ...], start: int = 0, length: int | None = None) -> "Extent":
        """Return the extent of a range of tensor slices.

        Without a length, the range includes all elements from `start`.
        """
        box = tuple((part.start, part.stop) for part in held)
        return cls(box, start, _volume(box) - start if length is None else length)

    def boxes(self) -> Iterator[tuple[int, Bounds]]:
        """Yield the boxes that form the range, with the offset of each box within the range."""
        shape = tuple(stop - start for start, stop in self.box)
        place = 0
        for inner in _boxes(shape, self.start, self.start + self.length):
            yield place, tuple((o + a, o + b) for (o, _), (a, b) in zip(self.box, inner, strict=True))
            place += _volume(inner)


def copy(target: Tensor, to: Extent, source: Tensor, of: Extent) -> int:
    """Copy the elements that two parts of a tensor have in common.

    Parameters
    ----------
    target, source
        Elements of the two parts, [to.length] and [of.length].
    to, of
        Extents of the two parts.

    Returns
    -------
    Number of copied elements.
    """
    copied = 0
    for (place, outer), (origin, inner) in _pairs(to, of):
        common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(outer, inner, strict=True))
        if all(a < b for a, b in common):
            _window(target, place, outer, common).copy_(_window(source, origin, inner, common))
            copied += _volume(common)
    return copied


def meet(extent: Extent, other: Extent) -> bool:
    """Return whether the boxes overlap. If the boxes overlap, the ranges may overlap, too."""
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(extent.box, other.box, strict=True))


def _pairs(to: Extent, of: Extent) -> Iterator[tuple[tuple[int, Bounds], tuple[int, Bounds]]]:
    if meet(to, of):
        others = list(of.boxes())
        for box in to.boxes():
            yield from ((box, other) for other in others)


def _window(flat: Tensor, place: int, box: Bounds, part: Bounds) -> Tensor:
    """Return a view of `part` of a box whose elements start at index `place` of `flat`."""
    shape = [stop - start for start, stop in box]
    values = flat[place : place + math.prod(shape)].view(shape)
    return values[tuple(slice(a - start, b - start) for (start, _), (a, b) in zip(box, part, strict=True))]


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Bounds]:
    """Yield boxes that together contain elements `start` to `stop` of a row-major array, in ascending order."""
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
