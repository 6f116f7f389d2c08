"""How much longer a layer takes in a step than its parts by tables of single kernels: measured with whole layers.

Tables time a product alone, in a loop, on values that a cache may hold. In a step a layer's weights come from memory,
what it keeps needs new memory, and Python starts each operator. The factor is measured by width and tokens, and
interpolated on logarithms, as efficiencies of products are. Layers that tensor parallelism has split have factors of
their own: on one rank less is multiplied, and as much is started.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NEIGHBOURS = 4
_NEAR = 1e-3
"""Squared distance of logarithms within which neighbours count alike."""


@dataclass(frozen=True)
class MeasuredLayer:
    """A measured layer, or one rank's part of it: how much longer its passes took than the sum of its kernels."""

    positions: str
    hidden: int
    tokens: int
    forward: float
    backward: float
    ways: int = 1
    """Ranks of tensor parallelism."""
    spread: bool = False
    """Whether each of them holds a part of the positions between layers."""


def interpolate_factors(
    measured: Sequence[MeasuredLayer],
    *,
    positions: str,
    hidden: float,
    tokens: int,
    ways: int = 1,
    spread: bool = False,
) -> tuple[float, float]:
    """Factors of the forward and the backward pass of a layer; 1 where nothing was measured.

    Parameters
    ----------
    hidden, tokens
        Width of the whole layer, and the tokens that pass it.
    ways, spread
        How it is split. Where no split layer was measured, a whole layer with as many weights as the rank's part tells.
    """
    split = [one for one in measured if one.ways > 1 and one.spread == spread] if ways > 1 else []
    those = split or [one for one in measured if one.ways == 1]
    those = [one for one in those if one.positions == positions] or those
    if not those:
        return 1.0, 1.0
    x, y = math.log(hidden if split else hidden / ways**0.5), math.log(tokens)
    near = sorted(
        (
            (math.log(one.hidden) - x) ** 2
            + (math.log(one.tokens) - y) ** 2
            + (math.log(one.ways / ways) ** 2 if split else 0.0),
            k,
        )
        for k, one in enumerate(those)
    )
    weights = [(1 / (distance + _NEAR), those[k]) for distance, k in near[:_NEIGHBOURS]]
    total = sum(weight for weight, _ in weights)
    forward = sum(weight * math.log(one.forward) for weight, one in weights) / total
    backward = sum(weight * math.log(one.backward) for weight, one in weights) / total
    return math.exp(forward), math.exp(backward)
