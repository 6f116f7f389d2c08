"""What a rank holds of a model, and how it lies in buckets: from the settings alone, as the engine does it. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

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

    def split(parameter: Parameter) -> bool:
        return parameter.dim is not None and layout.tp > 1

    def item(parameter: Parameter) -> Item:
        nbytes = math.prod(parameter.shape) * itemsize(train) / (layout.tp if split(parameter) else 1)
        return Item(nbytes, split(parameter), parameter.tied)

    def held(parameter: Parameter) -> int:
        """Elements on this rank."""
        if parameter.dim is None:
            return math.prod(parameter.shape)
        cut = parameter.shape[parameter.dim]
        return math.prod(parameter.shape) // cut * length(shards(cut, layout.tp)[index])

    def bucket(inside: list[Parameter], part: int) -> Bucket:
        filled = sum(map(held, inside))
        users = {unit for parameter in inside for unit in parameter.units}
        return Bucket(
            length=padded(filled, layout.dp),
            filled=filled,
            partial=train.sequence_parallel and layout.tp > 1 and not split(inside[0]),
            tied=inside[0].tied,
            gathers=sum(unit - 1 not in users for unit in users),
            part=part,
        )

    found = []
    for number in range(stage, layout.parts, layout.pp):
        backwards = [*parameters_of(model, train, layout, number)][::-1]
        for places in fuse(map(item, backwards), limit_bytes=train.bucket_mb * 1e6):
            found.append(bucket([backwards[place] for place in places], number))
    return found


def parameters_of(model: Model, train: Train, layout: Layout, number: int) -> Iterator[Parameter]:
    """The parameters of one of the parts that the pipeline cuts the model into, in the model's order."""
    layers = layout.layers_of(model.layers)[number]
    h, first, last = model.hidden, number == 0, number == layout.parts - 1
    apart = model.tied and layout.pp > 1
    norm = first + len(layers)
    if first:
        tied_here = model.tied and not apart
        yield Parameter((model.vocab, h), 0, (0, norm + 1) if tied_here else (0,), apart)
        if model.positions == "learned":
            yield Parameter((train.seq_len, h), None, (0,))
    for unit in range(int(first), norm):
        for shape, dim in _block(h):
            yield Parameter(shape, dim, (unit,))
    if last:
        yield Parameter((h,), None, (norm,))
        yield Parameter((h,), None, (norm,))
        if not model.tied or apart:
            yield Parameter((model.vocab, h), 0, (norm + 1,), apart)


def _block(h: int) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Shapes of a block's parameters, and the dims that are cut: twice a norm and a column and a row layer."""
    for entry, middle in ((3 * h, h), (4 * h, 4 * h)):
        yield (h,), None
        yield (h,), None
        yield (entry, h), 0
        yield (entry,), 0
        yield (h, middle), 1
        yield (h,), None
