"""Factors between the time of a layer in a step and the sum of its kernels in the tables, measured with whole layers.

Tables time each product alone, in a loop, and its values may be in a cache. In a step, a layer's weights come from
memory, its activations need new memory, and Python starts each operator. The factor is measured by width and number of
tokens, and interpolated on logarithms like the efficiency of products. Layers that are split by tensor parallelism have
their own factors: a rank multiplies less and starts the same number of operators.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NEIGHBOURS = 4
_NEAR = 1e-3
"""Squared distance of logarithms below which neighbors have about the same weight."""


@dataclass(frozen=True)
class MeasuredLayer:
    """Measured factors of a layer, or of one rank's part of it, over the sum of its kernels."""

    positions: str
    hidden: int
    tokens: int
    forward: float
    backward: float
    ways: int = 1
    """Number of tensor-parallel ranks."""
    spread: bool = False
    """Whether each of these ranks holds a part of the positions between layers."""


def interpolate_factors(
    measured: Sequence[MeasuredLayer],
    *,
    positions: str,
    hidden: float,
    tokens: int,
    ways: int = 1,
    spread: bool = False,
) -> tuple[float, float]:
    """Return the factors of the forward and the backward pass of a layer; 1 if no layer was measured.

    Parameters
    ----------
    hidden, tokens
        Width of the whole layer, and number of tokens.
    ways, spread
        Split of the layer. If no split layer was measured, the factors are those of a whole layer with the same number
        of weights as the rank's part.
    """
    split = [layer for layer in measured if layer.ways > 1 and layer.spread == spread] if ways > 1 else []
    candidates = split or [layer for layer in measured if layer.ways == 1]
    candidates = [layer for layer in candidates if layer.positions == positions] or candidates
    if not candidates:
        return 1.0, 1.0
    x, y = math.log(hidden if split else hidden / ways**0.5), math.log(tokens)
    near = sorted(
        (
            (math.log(layer.hidden) - x) ** 2
            + (math.log(layer.tokens) - y) ** 2
            + (math.log(layer.ways / ways) ** 2 if split else 0.0),
            k,
        )
        for k, layer in enumerate(candidates)
    )
    weights = [(1 / (distance + _NEAR), candidates[k]) for distance, k in near[:_NEIGHBOURS]]
    total = sum(weight for weight, _ in weights)
    forward = sum(weight * math.log(layer.forward) for weight, layer in weights) / total
    backward = sum(weight * math.log(layer.backward) for weight, layer in weights) / total
    return math.exp(forward), math.exp(backward)
