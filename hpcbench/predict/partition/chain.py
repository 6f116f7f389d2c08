"""Model as a chain of layers, with links between ranks and costs of stages. Pure.

The costs are those of PipeDream's partitioner (SOSP 2019), for one micro-batch:

- A stage of some layers on m ranks takes ``max(compute, 2 (m - 1) |w| / (m B)) / m``. The replicas of a stage take
turns, and the gradients of the stage's weights are summed over the replicas.
- The messages across a boundary take ``2 a / B``, for an activation and a gradient.

With a codec, the bytes of a message are multiplied by ``ratio``, and each unencoded byte takes ``codec_s`` additional
seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class ChainLayer:
    """One layer of the chain, on one rank."""

    seconds: float
    """Seconds of the forward and backward passes of one micro-batch."""
    weight_bytes: float = 0.0
    """Bytes of the layer's gradients in messages."""
    out_bytes: float = 0.0
    """Bytes that the layer sends to the next layer for one micro-batch."""
    kept_bytes: float = 0.0
    """Bytes of one micro-batch that the layer keeps until the backward pass."""
    version_bytes: float = 0.0
    """Bytes of one version of the layer's weights."""
    state_bytes: float = 0.0
    """Bytes of gradients and optimizer state, which exist only once."""


@dataclass(frozen=True)
class Coding:
    """Effect of a codec on messages."""

    ratio: float = 1.0
    """Encoded bytes per byte."""
    codec_s: float = 0.0
    """Seconds to encode and decode a byte."""

    def time_message(self, nbytes: float, bytes_per_s: float) -> float:
        """Return the time of a message in seconds."""
        return nbytes * (self.ratio / bytes_per_s + self.codec_s)


PLAIN = Coding()


@dataclass(frozen=True)
class LinkLevel:
    """Units of one kind that are connected by links of one kind: the ranks of a node, or nodes."""

    units: int
    """Number of units. On the lowest level, a unit is a rank. On other levels, a unit is the entire next lower
    level."""
    bytes_per_s: float
    """Bandwidth of a unit's link in one direction in bytes per second."""


@dataclass(frozen=True)
class Setting:
    """Links, codecs and memory for which a model is partitioned."""

    levels: Sequence[LinkLevel]
    """Levels from the lowest: links within a node, then links between nodes."""
    activations: Coding = PLAIN
    """Codec for messages across boundaries."""
    gradients: Coding = PLAIN
    """Codec for gradient sums."""
    memory_bytes: float | None = None
    """Memory of one rank, or None for no limit."""
    syncs: float = 1.0
    """Number of gradient sums per micro-batch: 1 for PipeDream, 1/m with m micro-batches per step."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(level.units for level in self.levels)

    def sync_factor(self, replicas: int, level: LinkLevel) -> float:
        """Return the time in seconds of gradient sums over `replicas` replicas, per gradient byte."""
        return self.syncs * self.gradients.time_message(2 * (replicas - 1) / replicas, level.bytes_per_s)


class LayerChain:
    """The layers in order, with prefix sums of their properties."""

    def __init__(self, layers: Sequence[ChainLayer]) -> None:
        if not layers:
            raise ValueError("a chain must have at least one layer")
        self.layers = tuple(layers)
        self.compute = self._accumulate([layer.seconds for layer in layers])
        self.weights = self._accumulate([layer.weight_bytes for layer in layers])
        self.activations = self._accumulate([layer.kept_bytes for layer in layers])
        self.versions = self._accumulate([layer.version_bytes for layer in layers])
        self.states = self._accumulate([layer.state_bytes for layer in layers])

    @staticmethod
    def _accumulate(values: Sequence[float]) -> list[float]:
        return list(accumulate(values, initial=0.0))

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def first_equal(self) -> list[list[int]]:
        """Start of the first sequence of layers that equals layers i to j.

        Equal sequences are partitioned only once.
        """
        numbers: dict[ChainLayer, int] = {}
        kinds = [numbers.setdefault(layer, len(numbers)) for layer in self.layers]
        first: dict[tuple[int, ...], int] = {}
        n = len(kinds)
        return [[first.setdefault(tuple(kinds[i:j]), i) for j in range(n + 1)] for i in range(n + 1)]

    def time_layers(self, i: int, j: int) -> float:
        """Return the computing time of layers i to j - 1."""
        return self.compute[j] - self.compute[i]

    def time_sums(self, i: int, j: int, replicas: int, level: LinkLevel, setting: Setting) -> float:
        """Return the time in seconds of the gradient sums of layers i to j - 1, for one micro-batch of each replica."""
        return setting.sync_factor(replicas, level) * (self.weights[j] - self.weights[i])

    def time_boundary(self, j: int, level: LinkLevel, setting: Setting) -> float:
        """Return the time in seconds of the messages before layer j, in both directions."""
        return 2 * setting.activations.time_message(self.layers[j - 1].out_bytes, level.bytes_per_s)

    def count_memory(self, i: int, j: int, *, alive: int, versions: int) -> float:
        """Return a rank's bytes for layers i to j - 1, with `alive` micro-batches and `versions` weight versions."""
        activations = alive * (self.activations[j] - self.activations[i])
        return activations + versions * (self.versions[j] - self.versions[i]) + self.states[j] - self.states[i]
