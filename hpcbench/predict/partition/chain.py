"""A model as a chain of layers, the links between its ranks, and what a stage of it costs. Pure.

The costs are those of PipeDream's partitioner (SOSP 2019), for one micro-batch on its way through the pipeline:

- a stage of some layers on m ranks takes ``max(compute, 2 (m - 1) |w| / (m B)) / m``: its replicas take turns, and the
  gradients of its weights are summed over them;
- a boundary takes ``2 a / B``: an activation there and a gradient back.

With a codec, a message has ``ratio`` times its bytes and takes ``codec_s`` seconds more for each byte before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class ChainLayer:
    """One layer of the chain, on one rank.

    Attributes
    ----------
    seconds
        Forward and backward passes of one micro-batch.
    weight_bytes
        Gradients of its weights, as they are sent.
    out_bytes
        What it sends on of one micro-batch.
    kept_bytes
        What it keeps of one micro-batch until the backward pass.
    version_bytes
        One version of its weights.
    state_bytes
        Gradients and states of the optimizer, of which there is one copy.
    """

    seconds: float
    weight_bytes: float = 0.0
    out_bytes: float = 0.0
    kept_bytes: float = 0.0
    version_bytes: float = 0.0
    state_bytes: float = 0.0


@dataclass(frozen=True)
class Coding:
    """What a codec makes of messages."""

    ratio: float = 1.0
    """Bytes after it for each before."""
    codec_s: float = 0.0
    """Seconds to encode and to decode a byte."""

    def seconds(self, nbytes: float, bytes_per_s: float) -> float:
        """Seconds of a message."""
        return nbytes * (self.ratio / bytes_per_s + self.codec_s)


PLAIN = Coding()


@dataclass(frozen=True)
class LinkLevel:
    """Units of one kind that links of one kind join: the ranks of a node, or nodes.

    Attributes
    ----------
    units
        How many; on the lowest level they are ranks, else each is all of the level below.
    bytes_per_s
        Bandwidth of a unit's link, one way.
    """

    units: int
    bytes_per_s: float


@dataclass(frozen=True)
class Setting:
    """What a cut is made for.

    Attributes
    ----------
    levels
        The lowest first: links within a node, then links between nodes.
    activations, gradients
        Codecs of the messages over boundaries, and of the sums of gradients.
    memory_bytes
        Memory of one rank; None for no limit.
    syncs
        Sums of gradients for each micro-batch: 1 for PipeDream, 1/m if m micro-batches make a step.
    """

    levels: Sequence[LinkLevel]
    activations: Coding = PLAIN
    gradients: Coding = PLAIN
    memory_bytes: float | None = None
    syncs: float = 1.0

    @property
    def ranks(self) -> int:
        """Ranks of all levels."""
        return math.prod(level.units for level in self.levels)

    def sync_factor(self, replicas: int, level: LinkLevel) -> float:
        """Seconds of the sums over so many replicas for each byte of gradients."""
        return self.syncs * self.gradients.seconds(2 * (replicas - 1) / replicas, level.bytes_per_s)


class LayerChain:
    """Layers in their order, with sums over any run of them."""

    def __init__(self, layers: Sequence[ChainLayer]) -> None:
        if not layers:
            raise ValueError("a chain has one layer or more")
        self.layers = tuple(layers)
        self.compute = self._sums([layer.seconds for layer in layers])
        self.weights = self._sums([layer.weight_bytes for layer in layers])
        self.kept = self._sums([layer.kept_bytes for layer in layers])
        self.versions = self._sums([layer.version_bytes for layer in layers])
        self.states = self._sums([layer.state_bytes for layer in layers])

    @staticmethod
    def _sums(values: Sequence[float]) -> list[float]:
        return list(accumulate(values, initial=0.0))

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def alike(self) -> list[list[int]]:
        """Begin of the first run of layers that equals layers i to j, so that alike runs are cut once."""
        names: dict[ChainLayer, int] = {}
        words = [names.setdefault(layer, len(names)) for layer in self.layers]
        first: dict[tuple[int, ...], int] = {}
        n = len(words)
        return [[first.setdefault(tuple(words[i:j]), i) for j in range(n + 1)] for i in range(n + 1)]

    def seconds(self, i: int, j: int) -> float:
        """Computing time of layers i to j - 1."""
        return self.compute[j] - self.compute[i]

    def sync(self, i: int, j: int, replicas: int, level: LinkLevel, setting: Setting) -> float:
        """Seconds of the sums of gradients of layers i to j - 1, for one micro-batch of each of the replicas."""
        return setting.sync_factor(replicas, level) * (self.weights[j] - self.weights[i])

    def boundary(self, j: int, level: LinkLevel, setting: Setting) -> float:
        """Seconds of the messages before layer j, there and back."""
        return 2 * setting.activations.seconds(self.layers[j - 1].out_bytes, level.bytes_per_s)

    def memory(self, i: int, j: int, *, alive: int, versions: int) -> float:
        """Bytes of a rank that holds layers i to j - 1, with so many micro-batches and versions under way."""
        passing = alive * (self.kept[j] - self.kept[i])
        return passing + versions * (self.versions[j] - self.versions[i]) + self.states[j] - self.states[i]
