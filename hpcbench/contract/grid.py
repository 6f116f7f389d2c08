"""Tensor grids: the axes that cut the dims of each matrix, for each mode of tensor parallelism. Pure data.

The ranks of tensor parallelism form a grid with an axis or more, and each axis may cut a dim of a matrix. A layer is a
product Y[M, N] = X[M, K] W[K, N], where rows M are samples times positions and whole samples stay together. `Product`
says which axes cut X, W and Y, and which ones cut M, K and N while blocks are multiplied. The traffic follows:

- an operand that lies cut more finely than it is multiplied is gathered over the axis that it has beyond;
- the blocks of a result are summands over the axes that cut the dim that is summed over. Where such an axis cuts a dim
  of the result, the sum is scattered over it; over the others the sum is completed once a step, as of a weight that
  several ranks hold alike;
- a dim that is *streamed* is gathered piece by piece: a broadcast of each operand's piece, or a reduction of each of
  the result's, so that no rank ever holds the whole (SUMMA, doi 10.1002/(SICI)1096-9128(199704)9:4<255::AID-CPE250>).

The same product serves forward, for the gradient of X and for that of W: only what is summed over differs. Sources: 2d
arXiv 2104.05343, 2.5d 2105.14500, 3d 2105.14450. In 3d the finer cut of a weight is along N, not along K as in the
paper: a weight lies in memory as [N, K], so that gathered pieces follow each other; all sizes are the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

Mode = Literal["1d", "2d", "2.5d", "3d"]
Axes = tuple[str, ...]
Cuts = Mapping[str, Axes]
"""The axes that cut each dim, outermost first."""

AXES: dict[str, Axes] = {"1d": ("t",), "2d": ("i", "j"), "2.5d": ("e", "i", "j"), "3d": ("i", "k", "j")}
"""The axes of each mode. Ranks are farthest apart along the first one.

Activations, mostly the largest messages, travel over j (and k); weights and their gradients travel over i (and e). So
the ranks that exchange activations share a node.
"""


GRID_AXES: Axes = ("e", "i", "j", "k")
"""The axes of all grids with more than one axis."""


WORDS = ("column", "row", "head", "vocabulary", "positions", "norm")
"""Names that a model's table may give a layer."""
OF_EXPERTS = "expert "
"""Begin of the names of layers that are a part of an expert."""
TABLES = ("head", "vocabulary", "positions")
"""Names of the layers without a bias."""


class ActivationCuts(NamedTuple):
    """How activations lie: the axes that cut their rows, outermost first, and those that cut their columns."""

    rows: Axes
    columns: Axes


class ExtraCut(NamedTuple):
    """A matrix lies cut along `dim` by `axis` more finely than it is multiplied."""

    dim: str
    axis: str


@dataclass(frozen=True)
class Multiplication:
    """The messages for a product of two matrices.

    Attributes
    ----------
    left, right
        How the parts of an operand are collected: by a gather, or by broadcasts if the dim is the streamed one.
    result
        How the summands are summed and shared out: by a reduce-scatter, or by reductions if the dim is streamed.
    pieces
        Number of pieces of the streamed dim; 1 without a streamed dim.
    unsummed
        Axes over which results are still summands.
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
        How the matrices lie.
    at
        How M, K and N are cut while blocks are multiplied.
    streamed
        The dim whose pieces come one after the other.
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
        """The messages of Y = X W."""
        return self._multiplication(self.x, self.w, self.y, over="K")

    @cached_property
    def input_gradient(self) -> Multiplication:
        """The messages for the gradient of X, from Y's gradient and W."""
        return self._multiplication(self.y, self.w, self.x, over="N")

    @cached_property
    def weight_gradient(self) -> Multiplication:
        """The messages for the gradient of W, from Y's gradient and X."""
        return self._multiplication(self.y, self.x, self.w, over="M")

    def _multiplication(self, left: Cuts, right: Cuts, result: Cuts, *, over: str) -> Multiplication:
        summands = self.at[over]
        move = self._beyond(result)
        if move and move.axis not in summands:
            raise ValueError(f"{move} of a result: its blocks are no summands over {move.axis}")
        streaming = self._beyond(self.w) if self.streamed else None
        pieces = self.sizes[streaming.axis] if streaming else 1
        unsummed = tuple(axis for axis in summands if not (move and axis == move.axis))
        return Multiplication(self._beyond(left), self._beyond(right), move, pieces, unsummed)

    def _beyond(self, cuts: Cuts) -> ExtraCut | None:
        found = None
        for dim, axes in cuts.items():
            at = self.at[dim]
            if axes == at:
                continue
            if found or axes[: len(at)] != at or len(axes) != len(at) + 1:
                raise ValueError(f"{dim} cut by {axes} is multiplied cut by {at}: one axis may come behind these")
            found = ExtraCut(dim, axes[-1])
        return found


@dataclass(frozen=True)
class Grid:
    """The ranks of tensor parallelism, and how the layers of a model lie on them.

    Attributes
    ----------
    mode
        Mode of tensor parallelism.
    sizes
        Sizes of the axes, in rank order: neighbours along the last axis are neighbouring ranks.
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
        """Return the number of pieces that these axes cut a dim into."""
        return math.prod(self.sizes[axis] for axis in axes)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank, by axis."""
        found = {}
        for axis, size in reversed(tuple(self.sizes.items())):
            rank, found[axis] = divmod(rank, size)
        return found

    def index(self, rank: int, axes: Axes) -> int:
        """Return the index of a rank's piece among the pieces that these axes cut a dim into."""
        own, place = self.coordinates(rank), 0
        for axis in axes:
            place = place * self.sizes[axis] + own[axis]
        return place

    def others(self, axes: Axes) -> Axes:
        """Return the axes that are not among these."""
        return tuple(axis for axis in self.axes if axis not in axes)

    def alike(self, cuts: tuple[Axes, ...]) -> Axes:
        """Return the axes along which ranks hold the same part of a matrix that is cut so."""
        cutting = [axis for axes in cuts for axis in axes]
        return tuple(axis for axis, size in self.sizes.items() if axis not in cutting and size > 1)

    @property
    def sums(self) -> set[Axes]:
        """All sets of axes along which parameters are held alike, or a mean of all samples is taken."""
        words = [(word, a) for word in WORDS for a in (("weight",) if word in TABLES else ("weight", "bias"))]
        found = {self.alike(self.cuts(*word)) for word in words} - {()}
        return found if self.mode == "1d" else found | {self.stream.rows, self.inner.rows}

    @property
    def rows(self) -> Axes:
        """The axes of the mode that cut rows, wherever activations lie."""
        return ("e", "i") if self.mode == "2.5d" else ("i",)

    @property
    def stream(self) -> ActivationCuts:
        """How the residual stream lies: between the layers, and between the stages of a pipeline."""
        return ActivationCuts(("i", "j"), ("k",)) if self.mode == "3d" else ActivationCuts(self.rows, ("j",))

    @property
    def inner(self) -> ActivationCuts:
        """How activations lie inside attention and MLP, and the logits."""
        return ActivationCuts(("i", "k"), ("j",)) if self.mode == "3d" else self.stream

    @property
    def samples(self) -> int:
        """Number of samples that a micro-batch must be a multiple of, so that no sample is cut."""
        if self.mode == "1d":
            return 1
        return max(self.count(self.stream.rows), self.count(self.inner.rows))

    @cached_property
    def products(self) -> dict[str, Product]:
        """The product of each kind of layer, by the layer's name in a model's table.

        ``column`` goes from the residual stream to the inside of a block, ``row`` back, ``head`` from the stream to
        the logits, and ``vocabulary`` from one-hot rows, which every rank knows, to the stream. Head and embedding
        have the same weight, [V, h], which may be one.
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
        """Return the axes that cut each dim of a layer's parameter, as PyTorch lays it out.

        Parameters
        ----------
        word
            What the model's table calls the layer. Layers of experts, which only mode 1d has, are cut like others.
        attribute
            ``weight`` or ``bias``.
        """
        if self.mode == "1d":
            t = ("t",)
            cut = {("column", "weight"): (t, ()), ("column", "bias"): (t,), ("row", "weight"): ((), t)}
            tables = {("head", "weight"): (t, ()), ("vocabulary", "weight"): (t, ())}
            whole = ((),) if word == "norm" or attribute == "bias" else ((), ())
            return {**cut, **tables}.get((word.removeprefix(OF_EXPERTS), attribute), whole)
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
    """Return the grid with this number of ranks.

    Raises
    ------
    ValueError
        No grid has this number of ranks. The message says which numbers fit.
    """
    if mode == "1d":
        return Grid(mode, {"t": tp})
    power = 3 if mode == "3d" else 2
    if tp % depth:
        raise ValueError(f"{tp} ranks are no multiple of depth {depth}: use {_near(depth, power, tp)}")
    q = round((tp // depth) ** (1 / power))
    if q**power * depth != tp:
        shape = {"2d": "q x q", "2.5d": f"{depth} x q x q", "3d": "q x q x q"}[mode]
        raise ValueError(f"{tp} ranks are no grid of {shape}: use {_near(depth, power, tp)}")
    return Grid(mode, {axis: depth if axis == "e" else q for axis in AXES[mode]})


def _near(depth: int, power: int, tp: int) -> str:
    """Return the numbers of ranks right below and above `tp` that are grids."""
    q = 1
    while depth * (q + 1) ** power <= tp:
        q += 1
    return f"{depth * q**power} or {depth * (q + 1) ** power}"


def is_summed_by_channel(alike: Axes) -> bool:
    """Return whether gradients of parameters that are alike along these axes are summed through a channel.

    That holds for the weights of 2.5d over depth. All other such gradients are few, and exact.
    """
    return alike == ("e",)


def carries_weights(axis: str) -> bool:
    """Return whether weights and their gradients travel over an axis, and not activations: the same in every mode."""
    return axis in ("e", "i")
