"""Parameters of a rank and their bucket layout, computed from the settings in the same way as in the engine. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import NamedTuple

from hpcbench.contract.grid import OF_EXPERTS, Axes, Grid, Mode, make_grid
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.sparse_fit import may_send_rows
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.engine.targets import list_roles
from hpcbench.parallel.fusion import Item, fuse, padded


@dataclass(frozen=True)
class Parameter:
    """A parameter of one part of the model."""

    shape: tuple[int, ...]
    """Shape in the whole model."""
    cuts: tuple[Axes, ...]
    """Axes of the tensor grid along which each dim is sharded."""
    units: tuple[int, ...]
    """Indices of the units that use the parameter. The units are the embedding, the blocks, the norm and the head."""
    tied: bool = False
    """Whether the parameter is one of the two copies of a tied weight."""
    ep: int = 1
    """Number of data-parallel ranks that hold different experts at this position; 1 for non-expert parameters."""
    by_rows: bool = False
    """Whether the gradient may be sent as touched rows."""
    role: str = ""
    """Layer and attribute, such as ``mlp.up.weight``, if the parameter can be pruned, otherwise an empty string."""


@dataclass(frozen=True)
class PredictedBucket:
    """A bucket of parameters on one rank."""

    length: int
    """Number of elements, including padding."""
    filled: int
    """Number of elements without padding."""
    summands: Axes
    """Axes of the tensor grid along which the gradients must be summed."""
    tied: bool
    """Whether the bucket holds one of the two copies of a tied weight."""
    gathers: int
    """Number of ZeRO-3 gathers of the bucket in the forward pass of a micro-batch, one for each run of adjacent units
    that use the bucket."""
    ep: int = 1
    """Number of data-parallel ranks that hold different experts at this position; 1 for a bucket without experts."""
    width: int = 0
    """Values per row if the gradient may be sent as touched rows, or 0 otherwise."""
    free: tuple[tuple[int, int], ...] = ()
    """Ranges (start, end) of elements that can be pruned to zero."""
    sent: int = 0
    """Number of elements in a gradient message, or in a weight message before the update. 0 means all elements."""
    given: int = 0
    """Number of elements in a message with updated weights. 0 means all elements."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the rank's parts of the parameters."""


class BucketLayout(NamedTuple):
    """Buckets of one part of the model, with identical buckets stored once."""

    kinds: tuple[tuple[PredictedBucket, int], ...]
    """Distinct buckets, each with its number of copies."""
    order: tuple[int, ...]
    """Indices in `kinds`, in the order in which the backward pass fills the buckets."""
    together: int
    """Largest number of elements that ZeRO-3 holds at a time: the elements of a unit, of the previous unit, whose
    weights are being gathered, and of the next unit, whose gradients are being summed."""


def get_itemsize(train: Train) -> int:
    """Return the number of bytes per value in the accumulation precision: 8 for fp64, else 4."""
    return 8 if train.precision == "fp64" else 4


def lay_out_buckets(model: Model, train: Train, layout: Layout, rank: int) -> dict[int, BucketLayout]:
    """Return the buckets of a rank, keyed by part number."""
    stage, _, index = layout.coordinates(rank)
    spread = train.sequence_parallel or layout.tensor != "1d"
    mesh = layout.tensor, layout.tp, layout.depth, layout.replicas, layout.ep, index
    rules = _Rules(get_itemsize(train), train.bucket_mb, spread, *mesh, list_roles(model, train))
    numbers = range(stage, layout.parts, layout.pp)
    return {number: _laid(_part(model, train, layout, number), rules) for number in numbers}


class _Part(NamedTuple):
    """Properties of a part that determine its parameters. Parts with equal properties have identical buckets."""

    model: Model
    seq_len: int
    experts: tuple[bool, ...]
    """Whether each layer has experts."""
    first: bool
    last: bool
    apart: bool
    """Whether the two copies of a tied weight are on different stages."""
    by_rows: bool
    """Whether the embedding gradient may be sent as touched rows."""


class _Rules(NamedTuple):
    """Settings that determine how parameters are assigned to buckets, and the index of a rank in the tensor grid."""

    itemsize: int
    bucket_mb: float
    spread: bool
    """Whether gradients of parameters replicated over tensor-parallel ranks must be summed over these ranks."""
    mode: Mode
    tp: int
    depth: int
    replicas: int
    ep: int
    place: int
    roles: tuple[str, ...] = ()
    """Roles of the parameters that can be pruned."""


def _part(model: Model, train: Train, layout: Layout, number: int) -> _Part:
    layers = layout.layers_of(model.layers)[number]
    first, last = number == 0, number == layout.parts - 1
    experts = tuple(layer in model.expert_layers for layer in layers)
    rows = first and may_send_rows(model, train, layout.tensor)
    return _Part(model, train.seq_len, experts, first, last, model.tied and layout.pp > 1, rows)


@lru_cache(maxsize=4096)
def _laid(part: _Part, rules: _Rules) -> BucketLayout:
    """Compute the buckets of a part. Results are cached, because many stages and runs have equal parts."""
    grid, place = make_grid(rules.mode, rules.tp, rules.depth), rules.place

    @cache
    def item(shape: tuple[int, ...], cuts: tuple[Axes, ...], alone: bool, ep: int) -> Item:
        parts = math.prod(grid.count(axes) for axes in cuts)
        return Item(math.prod(shape) * rules.itemsize / parts, grid.list_sharing_axes(cuts), alone, ep)

    @cache
    def held_shape(shape: tuple[int, ...], cuts: tuple[Axes, ...]) -> tuple[int, ...]:
        """Return the shape of the part on this rank."""
        return tuple(
            count_elements(cut_evenly(size, grid.count(axes))[grid.index(place, axes)]) if axes else size
            for size, axes in zip(shape, cuts, strict=True)
        )

    def bucket(inside: list[Parameter], users: set[int]) -> PredictedBucket:
        shapes = tuple(held_shape(parameter.shape, parameter.cuts) for parameter in inside)
        ends = [*accumulate(map(math.prod, shapes))]
        filled = ends[-1]
        runs = zip(inside, [0, *ends], ends, strict=False)
        return PredictedBucket(
            length=padded(filled, rules.replicas // inside[0].ep),
            filled=filled,
            summands=grid.list_sharing_axes(inside[0].cuts) if rules.spread else (),
            tied=inside[0].tied,
            gathers=sum(unit - 1 not in users for unit in users),
            ep=inside[0].ep,
            width=inside[0].shape[1] if inside[0].by_rows else 0,
            free=tuple((start, end) for parameter, start, end in runs if parameter.role in rules.roles),
            shapes=shapes,
        )

    reversed_parameters = [*_parameters(part, grid, rules.ep)][::-1]
    items = (
        item(item_bucket.shape, item_bucket.cuts, item_bucket.tied or item_bucket.by_rows, item_bucket.ep)
        for item_bucket in reversed_parameters
    )
    filled = fuse(items, limit_bytes=rules.bucket_mb * 1e6)
    groups = [[reversed_parameters[place] for place in places] for places in filled]
    used = [{unit for parameter in group for unit in parameter.units} for group in groups]
    buckets = [*map(bucket, groups, used)]
    present: dict[int, int] = {}
    for item_bucket, units in zip(buckets, used, strict=True):
        for unit in {unit + step for unit in units for step in (-1, 0, 1)}:
            present[unit] = present.get(unit, 0) + item_bucket.length
    kinds = {item_bucket: k for k, item_bucket in enumerate(dict.fromkeys(buckets))}
    order = tuple(kinds[item_bucket] for item_bucket in buckets)
    return BucketLayout(
        tuple((item_bucket, order.count(k)) for item_bucket, k in kinds.items()), order, max(present.values())
    )


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
        for shape, word, attribute, role in _block(model, ep, has_experts=has_experts):
            of = ep if word.startswith(OF_EXPERTS) else 1
            yield Parameter(shape, grid.cuts(word, attribute), (unit,), ep=of, role=role)
    if last:
        for shape, word, attribute, _ in _norm(model):
            yield Parameter(shape, grid.cuts(word, attribute), (norm,))
        if not model.tied or part.apart:
            yield Parameter((model.vocab, h), grid.cuts("head", "weight"), (norm + 1,), part.apart)


BlockParameter = tuple[tuple[int, ...], str, str, str]
"""Shape of a parameter, its layer in the tensor grid, its attribute, and its role."""


def _block(model: Model, ep: int, *, has_experts: bool) -> Iterator[BlockParameter]:
    """List the parameters of a block: norm, attention, norm, and an MLP or experts."""
    h, experts = model.hidden, model.experts
    yield from _norm(model)
    yield from _pair(model, model.qkv_width, h, roles=("attention.qkv", "attention.out"))
    yield from _norm(model)
    if experts is None or not has_experts:
        yield from _mlp(model, model.middle, roles=("mlp.up", "mlp.down"))
        return
    yield (experts.count, h), "router", "weight", ""
    for _ in range(experts.count // ep):
        yield from _mlp(model, model.expert_middle, OF_EXPERTS)
    if experts.shared:
        yield from _mlp(model, model.shared_middle)


def _norm(model: Model) -> Iterator[BlockParameter]:
    yield (model.hidden,), "norm", "weight", ""
    if model.norm == "layernorm":
        yield (model.hidden,), "norm", "bias", ""


def _mlp(model: Model, middle: int, of: str = "", *, roles: tuple[str, str] = ("", "")) -> Iterator[BlockParameter]:
    return _pair(model, (2 if model.gated else 1) * middle, middle, of, roles=roles)


def _pair(
    model: Model, entry: int, middle: int, of: str = "", *, roles: tuple[str, str] = ("", "")
) -> Iterator[BlockParameter]:
    """List the parameters of a column layer followed by a row layer."""
    h, (column, row) = model.hidden, roles
    yield (entry, h), f"{of}column", "weight", f"{column}.weight"
    if model.bias:
        yield (entry,), f"{of}column", "bias", f"{column}.bias"
    yield (h, middle), f"{of}row", "weight", f"{row}.weight"
    if model.bias:
        yield (h,), f"{of}row", "bias", f"{row}.bias"
