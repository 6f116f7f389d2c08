"""Measured ratios of the time of a whole layer in a step to the sum of its kernel times in the tables.

The tables contain the time of each product alone in a loop, where operands may be cached. In a step, weights come from
memory, activations need newly allocated memory, and Python launches each operator. The factor is measured for several
widths and numbers of tokens, and interpolated on logarithms in the same way as product efficiency. Tensor-parallel
layers have separate factors, because each rank computes smaller products, but launches the same number of operators.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NEIGHBOURS = 4
_NEAR = 1e-3
"""Squared log distance below which neighbors have about the same interpolation weight."""


@dataclass(frozen=True)
class MeasuredLayer:
    """Measured time of a layer, or of one rank's part, divided by the sum of its kernel times."""

    positions: str
    hidden: int
    tokens: int
    forward: float
    backward: float
    ways: int = 1
    """Number of tensor-parallel ranks."""
    spread: bool = False
    """Whether the positions between layers are sharded over these ranks."""


def interpolate_factors(
    measured: Sequence[MeasuredLayer],
    *,
    positions: str,
    hidden: float,
    tokens: int,
    ways: int = 1,
    spread: bool = False,
) -> tuple[float, float]:
    """Return the factors for a layer's forward and backward pass, or 1 if no layer was measured.

    Parameters
    ----------
    hidden, tokens
        Width of the whole layer, and number of tokens.
    ways, spread
        Sharding of the layer. If no sharded layer was measured, the factors of a whole layer with the same number of
        weights as the rank's part are used.
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
