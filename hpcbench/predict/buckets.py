"""What a rank holds of a model, and how it lies in buckets: from the settings alone, as the engine does it. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from hpcbench.comm.shards import length, shards
from hpcbench.parallel.fusion import Item, fuse, padded
from hpcbench.parallel.layout import Layout
from hpcbench.train.config import Model, Train


@dataclass(frozen=True)
class Parameter:
    """A parameter of a part of the model.

    Attributes
    ----------
    shape
        In the whole model.
    dim
        The dim that tensor parallelism cuts, if any.
    units
        Places of the units that use it: embedding, blocks, norm and head are units, in this order.
    tied
        It is one of the two copies of a tied weight.
    """

    shape: tuple[int, ...]
    dim: int | None
    units: tuple[int, ...]
    tied: bool = False


@dataclass(frozen=True)
class Bucket:
    """Some parameters of a rank.

    Attributes
    ----------
    length
        Elements, padding included.
    filled
        Elements of parameters.
    partial
        The gradients are summands, one on each rank of the tensor group (sequence parallelism).
    tied
        It holds one of the two copies of a tied weight.
    gathers
        Runs of neighbouring units that use it: so often ZeRO-3 gathers it in the forward pass of a micro-batch.
    part
        Of the model, which it belongs to.
    """

    length: int
    filled: int
    partial: bool
    tied: bool
    gathers: int
    part: int


def itemsize(train: Train) -> int:
    """Bytes of a value in the precision in which sums are made."""
    return 8 if train.precision == "fp64" else 4


def buckets_of(model: Model, train: Train, layout: Layout, rank: int) -> list[Bucket]:
    """The buckets of a rank, of all parts of the model that it holds."""
    stage, _, index = layout.coordinates(rank)
    rules = _Rules(itemsize(train), train.bucket_mb, train.sequence_parallel, layout.tp, layout.dp, index)
    found = []
    for number in range(stage, layout.parts, layout.pp):
        alike = _part(model, train, layout, number)
        found += [replace(bucket, part=number) for bucket in _buckets(alike, rules)]
    return found


class _Part(NamedTuple):
    """What decides on the parameters of a part: those of equal terms have equal buckets."""

    model: Model
    seq_len: int
    layers: int
    first: bool
    last: bool
    apart: bool
    """The two copies of a tied weight are on different stages."""


class _Rules(NamedTuple):
    """How parameters are laid in buckets."""

    itemsize: int
    bucket_mb: float
    sequence_parallel: bool
    tp: int
    dp: int
    place: int
    """In the tensor group."""


def _part(model: Model, train: Train, layout: Layout, number: int) -> _Part:
    layers = layout.layers_of(model.layers)[number]
    first, last = number == 0, number == layout.parts - 1
    return _Part(model, train.seq_len, len(layers), first, last, model.tied and layout.pp > 1)


@lru_cache(maxsize=4096)
def _buckets(part: _Part, rules: _Rules) -> tuple[Bucket, ...]:
    """The buckets of a part: many stages and many runs have the same."""

    def split(parameter: Parameter) -> bool:
        return parameter.dim is not None and rules.tp > 1

    def item(parameter: Parameter) -> Item:
        nbytes = math.prod(parameter.shape) * rules.itemsize / (rules.tp if split(parameter) else 1)
        return Item(nbytes, split(parameter), parameter.tied)

    def held(parameter: Parameter) -> int:
        """Elements on this rank."""
        if parameter.dim is None:
            return math.prod(parameter.shape)
        cut = parameter.shape[parameter.dim]
        return math.prod(parameter.shape) // cut * length(shards(cut, rules.tp)[rules.place])

    def bucket(inside: list[Parameter]) -> Bucket:
        filled = sum(map(held, inside))
        users = {unit for parameter in inside for unit in parameter.units}
        return Bucket(
            length=padded(filled, rules.dp),
            filled=filled,
            partial=rules.sequence_parallel and rules.tp > 1 and not split(inside[0]),
            tied=inside[0].tied,
            gathers=sum(unit - 1 not in users for unit in users),
            part=0,
        )

    backwards = [*_parameters(part)][::-1]
    filled = fuse(map(item, backwards), limit_bytes=rules.bucket_mb * 1e6)
    return tuple(bucket([backwards[place] for place in places]) for places in filled)


def parameters_of(model: Model, train: Train, layout: Layout, number: int) -> Iterator[Parameter]:
    """The parameters of one of the parts that the pipeline cuts the model into, in the model's order."""
    return _parameters(_part(model, train, layout, number))


def _parameters(part: _Part) -> Iterator[Parameter]:
    model, h, first, last = part.model, part.model.hidden, part.first, part.last
    norm = first + part.layers
    if first:
        tied_here = model.tied and not part.apart
        yield Parameter((model.vocab, h), 0, (0, norm + 1) if tied_here else (0,), part.apart)
        if model.positions == "learned":
            yield Parameter((part.seq_len, h), None, (0,))
    for unit in range(int(first), norm):
        for shape, dim in _block(h):
            yield Parameter(shape, dim, (unit,))
    if last:
        yield Parameter((h,), None, (norm,))
        yield Parameter((h,), None, (norm,))
        if not model.tied or part.apart:
            yield Parameter((model.vocab, h), 0, (norm + 1,), part.apart)


def _block(h: int) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Shapes of a block's parameters, and the dims that are cut: twice a norm and a column and a row layer."""
    for entry, middle in ((3 * h, h), (4 * h, 4 * h)):
        yield (h,), None
        yield (h,), None
        yield (entry, h), 0
        yield (entry,), 0
        yield (h, middle), 1
        yield (h,), None
