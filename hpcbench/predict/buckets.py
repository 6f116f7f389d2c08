"""What a rank holds of a model, and how it lies in buckets: from the settings alone, as the engine does it. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.contract.grid import Axes
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import length, shards
from hpcbench.contract.training import Model, Train
from hpcbench.parallel.fusion import Item, fuse, padded


@dataclass(frozen=True)
class Parameter:
    """A parameter of a part of the model.

    Attributes
    ----------
    shape
        In the whole model.
    cuts
        The axes of the tensor grid that cut each dim.
    units
        Places of the units that use it: embedding, blocks, norm and head are units, in this order.
    tied
        It is one of the two copies of a tied weight.
    """

    shape: tuple[int, ...]
    cuts: tuple[Axes, ...]
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
    summands
        The axes of the tensor grid along which the gradients are summands.
    tied
        It holds one of the two copies of a tied weight.
    gathers
        Runs of neighbouring units that use it: so often ZeRO-3 gathers it in the forward pass of a micro-batch.
    """

    length: int
    filled: int
    summands: Axes
    tied: bool
    gathers: int


def itemsize(train: Train) -> int:
    """Bytes of a value in the precision in which sums are made."""
    return 8 if train.precision == "fp64" else 4


def buckets_of(model: Model, train: Train, layout: Layout, rank: int) -> list[Bucket]:
    """The buckets of a rank, of all parts of the model that it holds."""
    stage, _, index = layout.coordinates(rank)
    grid = layout.grid
    spread = train.sequence_parallel or grid.mode != "1d"

    def item(parameter: Parameter) -> Item:
        parts = math.prod(grid.count(axes) for axes in parameter.cuts)
        nbytes = math.prod(parameter.shape) * itemsize(train) / parts
        return Item(nbytes, grid.alike(parameter.cuts), parameter.tied)

    def held(parameter: Parameter) -> int:
        """Elements on this rank."""
        return math.prod(
            length(shards(size, grid.count(axes))[grid.index(index, axes)])
            for size, axes in zip(parameter.shape, parameter.cuts, strict=True)
        )

    def bucket(inside: list[Parameter]) -> Bucket:
        filled = sum(map(held, inside))
        users = {unit for parameter in inside for unit in parameter.units}
        return Bucket(
            length=padded(filled, layout.dp),
            filled=filled,
            summands=grid.alike(inside[0].cuts) if spread else (),
            tied=inside[0].tied,
            gathers=sum(unit - 1 not in users for unit in users),
        )

    found = []
    for number in range(stage, layout.parts, layout.pp):
        backwards = [*parameters_of(model, train, layout, number)][::-1]
        for places in fuse(map(item, backwards), limit_bytes=train.bucket_mb * 1e6):
            found.append(bucket([backwards[place] for place in places]))
    return found


def parameters_of(model: Model, train: Train, layout: Layout, number: int) -> Iterator[Parameter]:
    """The parameters of one of the parts that the pipeline cuts the model into, in the model's order."""
    layers = layout.layers_of(model.layers)[number]
    h, first, last, grid = model.hidden, number == 0, number == layout.parts - 1, layout.grid
    apart = model.tied and layout.pp > 1
    norm = first + len(layers)
    if first:
        tied_here = model.tied and not apart
        table = grid.cuts("vocabulary", "weight")
        yield Parameter((model.vocab, h), table, (0, norm + 1) if tied_here else (0,), apart)
        if model.positions == "learned":
            yield Parameter((train.seq_len, h), grid.cuts("positions", "weight"), (0,))
    for unit in range(int(first), norm):
        for shape, word, attribute in _block(h):
            yield Parameter(shape, grid.cuts(word, attribute), (unit,))
    if last:
        for attribute in ("weight", "bias"):
            yield Parameter((h,), grid.cuts("norm", attribute), (norm,))
        if not model.tied or apart:
            yield Parameter((model.vocab, h), grid.cuts("head", "weight"), (norm + 1,), apart)


def _block(h: int) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """Shapes of a block's parameters, and whose they are: twice a norm and a column and a row layer."""
    for entry, middle in ((3 * h, h), (4 * h, 4 * h)):
        yield (h,), "norm", "weight"
        yield (h,), "norm", "bias"
        yield (entry, h), "column", "weight"
        yield (entry,), "column", "bias"
        yield (h, middle), "row", "weight"
        yield (h,), "row", "bias"
