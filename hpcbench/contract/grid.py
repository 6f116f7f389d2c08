"""Tensor grids: the axes that shard the dims of each matrix, for each mode of tensor parallelism.

Tensor-parallel ranks form a grid with one or more axes. Each axis may shard a dim of a matrix. A layer is a product
Y[M, N] = X[M, K] W[K, N]. The M rows are the positions of all samples, and a sample is never split. `Product` contains
the axes that shard X, W and Y in memory, and the axes that shard M, K and N during block multiplication. These axes
determine the traffic:

- If an axis shards an operand in memory but not in the product, the operand is gathered over this axis.
- Blocks of a result are partial sums over the axes that shard the contracted dim. If such an axis also shards the
  result, the sums are reduce-scattered over it. Over other axes, the sums are reduced once per step, like gradients of
  replicated weights.
- A *streamed* dim is gathered in pieces. Each piece of an operand is broadcast, or each piece of the result is reduced,
  so no rank holds the whole matrix (SUMMA, doi 10.1002/(SICI)1096-9128(199704)9:4<255::AID-CPE250>).

The forward pass, the gradient of X and the gradient of W use the same product; only the contracted dim differs.
Sources: 2d arXiv 2104.05343, 2.5d 2105.14500, 3d 2105.14450. In 3d, weights are sharded more finely along N, not along
K as in the paper. Weights are stored as [N, K], so gathered pieces are contiguous. All shards have the same sizes as in
the paper.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

Mode = Literal["1d", "2d", "2.5d", "3d"]
Axes = tuple[str, ...]
Cuts = Mapping[str, Axes]
"""Axes that shard each dim, outermost first."""

AXES: dict[str, Axes] = {"1d": ("t",), "2d": ("i", "j"), "2.5d": ("e", "i", "j"), "3d": ("i", "k", "j")}
"""Axes of each mode. Ranks are farthest apart along the first axis.

Activations, usually the largest messages, are sent over j (and k). Weights and their gradients are sent over i (and e).
Therefore ranks that exchange activations are close together.
"""


GRID_AXES: Axes = ("e", "i", "j", "k")
"""Axes of all multi-axis grids."""


WORDS = ("column", "row", "head", "vocabulary", "positions", "norm")
"""Layer kinds that tensor parallelism distinguishes. These kinds are the keys of the sharding tables."""
OF_EXPERTS = "expert "
"""Prefix of layer kinds within an expert."""
TABLES = ("head", "vocabulary", "positions")
"""Layer kinds without a bias."""


class ActivationCuts(NamedTuple):
    """Axes that shard the rows and columns of activations in memory, outermost first."""

    rows: Axes
    columns: Axes


class ExtraCut(NamedTuple):
    """An axis that shards a matrix dim in memory, but not in the product."""

    dim: str
    axis: str


@dataclass(frozen=True)
class Multiplication:
    """Messages of one matrix product.

    Attributes
    ----------
    left, right
        Messages that collect an operand's shards: a gather, or broadcasts for a streamed dim.
    result
        Messages that reduce the partial sums: a reduce-scatter, or reductions for a streamed dim.
    pieces
        Number of pieces of the streamed dim, or 1 if no dim is streamed.
    unsummed
        Axes over which results remain partial sums.
    """

    left: ExtraCut | None
    right: ExtraCut | None
    result: ExtraCut | None
    pieces: int
    unsummed: Axes


@dataclass(frozen=True)
class Product:
    """Y[M, N] = X[M, K] W[K, N] on a grid.

    Attributes
    ----------
    x, w, y
        Axes that shard the dims of the matrices in memory.
    at
        Axes that shard M, K and N during block multiplication.
    streamed
        Dim whose pieces are sent one after another.
    sizes
        Sizes of the axes.
    """

    x: Cuts
    w: Cuts
    y: Cuts
    at: Cuts
    streamed: str | None
    sizes: Mapping[str, int]

    @cached_property
    def forward(self) -> Multiplication:
        """Messages of Y = X W."""
        return self._multiplication(self.x, self.w, self.y, over="K")

    @cached_property
    def input_gradient(self) -> Multiplication:
        """Messages for the gradient of X, computed from Y's gradient and W."""
        return self._multiplication(self.y, self.w, self.x, over="N")

    @cached_property
    def weight_gradient(self) -> Multiplication:
        """Messages for the gradient of W, computed from Y's gradient and X."""
        return self._multiplication(self.y, self.x, self.w, over="M")

    def _multiplication(self, left: Cuts, right: Cuts, result: Cuts, *, over: str) -> Multiplication:
        summands = self.at[over]
        move = self._beyond(result)
        if move and move.axis not in summands:
            raise ValueError(
                f"a result has {move}, but its blocks are not summed over {move.axis}: correct the product"
            )
        streaming = self._beyond(self.w) if self.streamed else None
        pieces = self.sizes[streaming.axis] if streaming else 1
        unsummed = tuple(axis for axis in summands if not (move and axis == move.axis))
        return Multiplication(self._beyond(left), self._beyond(right), move, pieces, unsummed)

    def _beyond(self, cuts: Cuts) -> ExtraCut | None:
        extra = None
        for dim, axes in cuts.items():
            at = self.at[dim]
            if axes == at:
                continue
            if extra or axes[: len(at)] != at or len(axes) != len(at) + 1:
                raise ValueError(
                    f"{dim} is cut by {axes} in memory and by {at} in the product: memory may have only one more axis, "
                    "at the end"
                )
            extra = ExtraCut(dim, axes[-1])
        return extra


@dataclass(frozen=True)
class Grid:
    """A grid of tensor-parallel ranks, and the distribution of layers over them.

    Attributes
    ----------
    mode
        Mode of tensor parallelism.
    sizes
        Sizes of the axes in rank order. Neighbors along the last axis are consecutive ranks.
    """

    mode: str
    sizes: Mapping[str, int]

    @property
    def axes(self) -> Axes:
        """Names of the axes, in rank order."""
        return tuple(self.sizes)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.sizes.values())

    def count(self, axes: Axes) -> int:
        """Return the number of shards into which these axes cut a dim."""
        return math.prod(self.sizes[axis] for axis in axes)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return a rank's coordinate on each axis."""
        coordinates = {}
        for axis, size in reversed(tuple(self.sizes.items())):
            rank, coordinates[axis] = divmod(rank, size)
        return coordinates

    def index(self, rank: int, axes: Axes) -> int:
        """Return the index of a rank's shard of a dim, given the axes that shard the dim."""
        coordinates, index = self.coordinates(rank), 0
        for axis in axes:
            index = index * self.sizes[axis] + coordinates[axis]
        return index

    def others(self, axes: Axes) -> Axes:
        """Return all axes of the grid except the given axes."""
        return tuple(axis for axis in self.axes if axis not in axes)

    def list_sharing_axes(self, cuts: tuple[Axes, ...]) -> Axes:
        """Return the axes along which a matrix with these cuts is replicated."""
        cutting = [axis for axes in cuts for axis in axes]
        return tuple(axis for axis, size in self.sizes.items() if axis not in cutting and size > 1)

    @property
    def sums(self) -> set[Axes]:
        """All sets of axes along which parameters are replicated or samples are averaged."""
        parameters = [
            (parameter, a) for parameter in WORDS for a in (("weight",) if parameter in TABLES else ("weight", "bias"))
        ]
        shared = {self.list_sharing_axes(self.cuts(*parameter)) for parameter in parameters} - {()}
        return shared if self.mode == "1d" else shared | {self.stream.rows, self.inner.rows}

    @property
    def rows(self) -> Axes:
        """Axes that shard the rows of all activations in this mode."""
        return ("e", "i") if self.mode == "2.5d" else ("i",)

    @property
    def stream(self) -> ActivationCuts:
        """Cuts of the residual stream between layers and pipeline stages."""
        return ActivationCuts(("i", "j"), ("k",)) if self.mode == "3d" else ActivationCuts(self.rows, ("j",))

    @property
    def inner(self) -> ActivationCuts:
        """Cuts of the activations inside attention and MLP, and of the logits."""
        return ActivationCuts(("i", "k"), ("j",)) if self.mode == "3d" else self.stream

    @property
    def samples(self) -> int:
        """Number that must divide the micro-batch size, so that no sample is split."""
        if self.mode == "1d":
            return 1
        return max(self.count(self.stream.rows), self.count(self.inner.rows))

    @cached_property
    def products(self) -> dict[str, Product]:
        """Products keyed by layer kind.

        ``column`` maps the residual stream to the activations inside a block, and ``row`` maps these back. ``head``
        maps the stream to the logits. ``vocabulary`` maps one-hot rows, which are replicated on all ranks, to the
        stream. Head and embedding weights both have the shape [V, h] and may be shared.
        """
        m, stream, inner = self.rows, self.stream, self.inner
        if self.mode == "3d":
            return {
                "column": self._product(stream, (("k",), ("j", "i")), inner, (m, ("k",), ("j",))),
                "row": self._product(inner, (("j",), ("k", "i")), stream, (m, ("j",), ("k",))),
                "head": self._product(stream, (("k",), ("j", "i")), inner, (m, ("k",), ("j",))),
                "vocabulary": self._product(
                    ActivationCuts(m, ("j",)), (("j", "i"), ("k",)), stream, (m, ("j",), ("k",))
                ),
            }
        linear = self._product(stream, (("i",), ("j",)), stream, (m, (), ("j",)), "K")
        return {
            "column": linear,
            "row": linear,
            "head": self._product(stream, (("j",), ("i",)), stream, (m, ("j",), ()), "N"),
            "vocabulary": self._product(ActivationCuts(m, ()), (("i",), ("j",)), stream, (m, (), ("j",)), "K"),
        }

    def _product(
        self,
        x: ActivationCuts,
        w: tuple[Axes, Axes],
        y: ActivationCuts,
        at: tuple[Axes, Axes, Axes],
        streamed: str | None = None,
    ) -> Product:
        (m, k, n), (w_k, w_n) = at, w
        return Product(
            {"M": x.rows, "K": x.columns},
            {"K": w_k, "N": w_n},
            {"M": y.rows, "N": y.columns},
            {"M": m, "K": k, "N": n},
            streamed,
            self.sizes,
        )

    def cuts(self, word: str, attribute: str) -> tuple[Axes, ...]:
        """Return the axes that shard each dim of a layer's parameter in PyTorch's layout.

        Parameters
        ----------
        word
            Layer kind. Expert layers, which only mode 1d supports, are sharded like other layers.
        attribute
            ``weight`` or ``bias``.
        """
        if self.mode == "1d":
            t = ("t",)
            cut = {("column", "weight"): (t, ()), ("column", "bias"): (t,), ("row", "weight"): ((), t)}
            tables = {("head", "weight"): (t, ()), ("vocabulary", "weight"): (t, ())}
            uncut = ((),) if word == "norm" or attribute == "bias" else ((), ())
            return {**cut, **tables}.get((word.removeprefix(OF_EXPERTS), attribute), uncut)
        if word == "norm":
            return (self.stream.columns,)
        if word == "positions":
            return (), self.stream.columns
        product = self.products[word]
        if attribute == "bias":
            return (product.y["N"],)
        k, n = product.w["K"], product.w["N"]
        return (k, n) if word == "vocabulary" else (n, k)

    def __str__(self) -> str:
        return f"{self.mode}: " + " x ".join(f"{axis} {size}" for axis, size in self.sizes.items())


@lru_cache
def make_grid(mode: str, tp: int, depth: int = 1) -> Grid:
    """Return the grid of a mode with `tp` ranks.

    Raises
    ------
    ValueError
        No grid has this number of ranks. The message suggests valid numbers.
    """
    if mode == "1d":
        return Grid(mode, {"t": tp})
    power = 3 if mode == "3d" else 2
    if tp % depth:
        raise ValueError(f"{tp} ranks are not a multiple of depth {depth}: use {_near(depth, power, tp)}")
    q = round((tp // depth) ** (1 / power))
    if q**power * depth != tp:
        shape = {"2d": "q x q", "2.5d": f"{depth} x q x q", "3d": "q x q x q"}[mode]
        raise ValueError(f"{tp} ranks do not form a grid of {shape}: use {_near(depth, power, tp)}")
    return Grid(mode, {axis: depth if axis == "e" else q for axis in AXES[mode]})


def _near(depth: int, power: int, tp: int) -> str:
    """Describe the nearest numbers of ranks below and above `tp` that form a grid."""
    q = 1
    while depth * (q + 1) ** power <= tp:
        q += 1
    return f"{depth * q**power} or {depth * (q + 1) ** power}"


def is_summed_by_channel(alike: Axes) -> bool:
    """Return whether a channel sums the gradients of parameters that are replicated along these axes.

    Only the gradients of 2.5d weights, along the depth axis, are summed by a channel. Other replicated parameters are
    small, and the sums of their gradients are exact.
    """
    return alike == ("e",)


def carries_weights(axis: str) -> bool:
    """Return whether weights and their gradients, instead of activations, are sent over an axis, in all modes."""
    return axis in ("e", "i")
