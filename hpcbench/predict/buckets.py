"""What a rank holds of a model, and how it lies in buckets: from the settings alone, as the engine does it. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import NamedTuple

from hpcbench.contract.experts import Experts
from hpcbench.contract.grid import OF_EXPERTS, Axes, Grid, Mode, make_grid
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.sparse_fit import may_send_rows
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.engine.targets import roles
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
    ep
        Number of data-parallel ranks that hold different experts in its place; 1 if it is of no expert.
    by_rows
        Its gradient may travel by the rows that were touched.
    role
        BlockParameter and attribute, as ``mlp.up.weight``, of what can become sparse; empty for all else.
    """

    shape: tuple[int, ...]
    cuts: tuple[Axes, ...]
    units: tuple[int, ...]
    tied: bool = False
    ep: int = 1
    by_rows: bool = False
    role: str = ""


@dataclass(frozen=True)
class PredictedBucket:
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
    ep
        Number of data-parallel ranks that hold different experts in its place; 1 if it has none.
    width
        Values of a row, if it is a table whose gradient may travel by the rows that were touched; else 0.
    """

    length: int
    filled: int
    summands: Axes
    tied: bool
    gathers: int
    ep: int = 1
    width: int = 0
    free: tuple[tuple[int, int], ...] = ()
    """Runs of elements that can become zero, each from its first element up to its end."""
    sent: int = 0
    """Elements of a message of gradients, and of weights before the update; 0 means all."""
    given: int = 0
    """Elements of a message of updated weights; 0 means all."""


class BucketLayout(NamedTuple):
    """The buckets of a part of the model, of which many are alike.

    Attributes
    ----------
    kinds
        Those that differ, each with how many there are.
    order
        Places in `kinds`, in the order in which the backward pass fills them.
    together
        The most elements that ZeRO-3 has of them at a time: of a unit, of the one before, whose weights are under way,
        and of the one after, whose gradients are not all added yet.
    """

    kinds: tuple[tuple[PredictedBucket, int], ...]
    order: tuple[int, ...]
    together: int


def get_itemsize(train: Train) -> int:
    """Bytes of a value in the precision in which sums are made."""
    return 8 if train.precision == "fp64" else 4


def list_buckets(model: Model, train: Train, layout: Layout, rank: int) -> list[PredictedBucket]:
    """The buckets of a rank, of all parts of the model that it holds."""
    return [laid.kinds[k][0] for laid in lay_out_buckets(model, train, layout, rank).values() for k in laid.order]


def lay_out_buckets(model: Model, train: Train, layout: Layout, rank: int) -> dict[int, BucketLayout]:
    """The same by the number of the part."""
    stage, _, index = layout.coordinates(rank)
    mesh = _Mesh(layout.tensor, layout.tp, layout.depth, layout.replicas, layout.ep, index)
    spread = train.sequence_parallel or layout.tensor != "1d"
    rules = _Rules(get_itemsize(train), train.bucket_mb, spread, mesh, roles(model, train))
    numbers = range(stage, layout.parts, layout.pp)
    return {number: _laid(_part(model, train, layout, number), rules) for number in numbers}


class _Part(NamedTuple):
    """What decides on the parameters of a part: those of equal terms have equal buckets."""

    model: Model
    seq_len: int
    experts: tuple[bool, ...]
    """Whether each layer has experts."""
    first: bool
    last: bool
    apart: bool
    """The two copies of a tied weight are on different stages."""
    by_rows: bool
    """The embedding's gradient may travel by the rows that were touched."""


class _Mesh(NamedTuple):
    """The tensor grid and the replicas, and a rank's place in the grid."""

    mode: Mode
    tp: int
    depth: int
    replicas: int
    ep: int
    place: int

    @property
    def grid(self) -> Grid:
        return make_grid(self.mode, self.tp, self.depth)


class _Rules(NamedTuple):
    """How parameters are laid in buckets."""

    itemsize: int
    bucket_mb: float
    spread: bool
    """Gradients of what tensor-parallel ranks hold alike are summands."""
    mesh: _Mesh
    roles: tuple[str, ...] = ()
    """The parameters of a block that can have zeros."""


def _part(model: Model, train: Train, layout: Layout, number: int) -> _Part:
    layers = layout.layers_of(model.layers)[number]
    first, last = number == 0, number == layout.parts - 1
    experts = tuple(layer in model.expert_layers for layer in layers)
    rows = first and may_send_rows(model, train, layout.tensor)
    return _Part(model, train.seq_len, experts, first, last, model.tied and layout.pp > 1, rows)


@lru_cache(maxsize=4096)
def _laid(part: _Part, rules: _Rules) -> BucketLayout:
    """The buckets of a part: many stages and many runs have the same."""
    grid, place = rules.mesh.grid, rules.mesh.place

    @cache
    def item(shape: tuple[int, ...], cuts: tuple[Axes, ...], alone: bool, ep: int) -> Item:
        parts = math.prod(grid.count(axes) for axes in cuts)
        return Item(math.prod(shape) * rules.itemsize / parts, grid.alike(cuts), alone, ep)

    @cache
    def held(shape: tuple[int, ...], cuts: tuple[Axes, ...]) -> int:
        """Elements on this rank."""
        return math.prod(
            count_elements(cut_evenly(size, grid.count(axes))[grid.index(place, axes)]) if axes else size
            for size, axes in zip(shape, cuts, strict=True)
        )

    def bucket(inside: list[Parameter], users: set[int]) -> PredictedBucket:
        ends = [*accumulate(held(parameter.shape, parameter.cuts) for parameter in inside)]
        filled = ends[-1]
        runs = zip(inside, [0, *ends], ends, strict=False)
        return PredictedBucket(
            length=padded(filled, rules.mesh.replicas // inside[0].ep),
            filled=filled,
            summands=grid.alike(inside[0].cuts) if rules.spread else (),
            tied=inside[0].tied,
            gathers=sum(unit - 1 not in users for unit in users),
            ep=inside[0].ep,
            width=inside[0].shape[1] if inside[0].by_rows else 0,
            free=tuple((start, end) for parameter, start, end in runs if parameter.role in rules.roles),
        )

    backwards = [*_parameters(part, grid, rules.mesh.ep)][::-1]
    items = (item(one.shape, one.cuts, one.tied or one.by_rows, one.ep) for one in backwards)
    filled = fuse(items, limit_bytes=rules.bucket_mb * 1e6)
    groups = [[backwards[place] for place in places] for places in filled]
    used = [{unit for parameter in group for unit in parameter.units} for group in groups]
    buckets = [*map(bucket, groups, used)]
    present: dict[int, int] = {}
    for one, units in zip(buckets, used, strict=True):
        for unit in {unit + step for unit in units for step in (-1, 0, 1)}:
            present[unit] = present.get(unit, 0) + one.length
    kinds = {one: k for k, one in enumerate(dict.fromkeys(buckets))}
    order = tuple(kinds[one] for one in buckets)
    return BucketLayout(tuple((one, order.count(k)) for one, k in kinds.items()), order, max(present.values()))


def list_parameters(model: Model, train: Train, layout: Layout, number: int) -> Iterator[Parameter]:
    """A rank's parameters of one of the parts that the pipeline cuts the model into, in the model's order."""
    return _parameters(_part(model, train, layout, number), layout.grid, layout.ep)


def _parameters(part: _Part, grid: Grid, ep: int) -> Iterator[Parameter]:
    model, h, first, last = part.model, part.model.hidden, part.first, part.last
    norm = first + len(part.experts)
    if first:
        tied_here = model.tied and not part.apart
        table = grid.cuts("vocabulary", "weight")
        yield Parameter((model.vocab, h), table, (0, norm + 1) if tied_here else (0,), part.apart, by_rows=part.by_rows)
        if model.positions == "learned":
            yield Parameter((part.seq_len, h), grid.cuts("positions", "weight"), (0,))
    for unit, has_experts in enumerate(part.experts, start=int(first)):
        for shape, word, attribute, role in _block(h, model.experts if has_experts else None, ep):
            of = ep if word.startswith(OF_EXPERTS) else 1
            yield Parameter(shape, grid.cuts(word, attribute), (unit,), ep=of, role=role)
    if last:
        for attribute in ("weight", "bias"):
            yield Parameter((h,), grid.cuts("norm", attribute), (norm,))
        if not model.tied or part.apart:
            yield Parameter((model.vocab, h), grid.cuts("head", "weight"), (norm + 1,), part.apart)


BlockParameter = tuple[tuple[int, ...], str, str, str]
"""Shape of a parameter, whose it is, and its role."""


def _block(h: int, experts: Experts | None, ep: int) -> Iterator[BlockParameter]:
    """The parameters of a block: twice a norm and a column and a row layer, or after the second norm experts."""
    yield from _norm(h)
    yield from _pair(h, 3 * h, h, roles=("attention.qkv", "attention.out"))
    yield from _norm(h)
    if experts is None:
        yield from _pair(h, 4 * h, 4 * h, roles=("mlp.up", "mlp.down"))
        return
    yield (experts.count, h), "router", "weight", ""
    for _ in range(experts.count // ep):
        yield from _pair(h, 4 * h, 4 * h, OF_EXPERTS)
    if experts.shared:
        yield from _pair(h, 4 * h, 4 * h)


def _norm(h: int) -> Iterator[BlockParameter]:
    yield (h,), "norm", "weight", ""
    yield (h,), "norm", "bias", ""


def _pair(
    h: int, entry: int, middle: int, of: str = "", *, roles: tuple[str, str] = ("", "")
) -> Iterator[BlockParameter]:
    """A column and a row layer."""
    column, row = roles
    yield (entry, h), f"{of}column", "weight", f"{column}.weight"
    yield (entry,), f"{of}column", "bias", f"{column}.bias"
    yield (h, middle), f"{of}row", "weight", f"{row}.weight"
    yield (h,), f"{of}row", "bias", f"{row}.bias"
