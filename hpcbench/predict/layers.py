"""How much longer a layer takes in a step than its parts by tables of single kernels: measured with whole layers.

Tables time a product alone, in a loop, on values that a cache may hold. In a step a layer's weights come from memory,
what it keeps needs new memory, and Python starts each operator. The factor is measured by width and tokens, and
interpolated on logarithms, as efficiencies of products are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NEIGHBOURS = 4
_NEAR = 1e-3
"""Squared distance of logarithms within which neighbours count alike."""


@dataclass(frozen=True)
class Layer:
    """A measured layer: how much longer its passes took than the sum of its kernels."""

    positions: str
    hidden: int
    tokens: int
    forward: float
    backward: float


def factors(measured: Sequence[Layer], *, positions: str, hidden: float, tokens: float) -> tuple[float, float]:
    """Factors of the forward and the backward pass of a layer; 1 where nothing was measured.

    Parameters
    ----------
    hidden
        Width whose layer has as many weights as the rank's part of one.
    """
    those = [one for one in measured if one.positions == positions] or measured
    if not those:
        return 1.0, 1.0
    x, y = math.log(hidden), math.log(tokens)
    near = sorted(((math.log(one.hidden) - x) ** 2 + (math.log(one.tokens) - y) ** 2, k) for k, one in enumerate(those))
    weights = [(1 / (distance + _NEAR), those[k]) for distance, k in near[:_NEIGHBOURS]]
    total = sum(weight for weight, _ in weights)
    forward = sum(weight * math.log(one.forward) for weight, one in weights) / total
    backward = sum(weight * math.log(one.backward) for weight, one in weights) / total
    return math.exp(forward), math.exp(backward)
