"""Prunable weights, and the units in which they are selected, for the engine and for predictions.

As usual, embeddings, the output layer, norms and the biases of row-parallel layers stay dense. A unit is a single
weight, an MLP neuron (its row, bias and column), or an attention head (its rows, biases and columns). A neuron or head
whose weights are all zero adds nothing to the residual stream.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.settings import Pattern

DIGIT = 256
"""Number of values that a byte can have. Magnitudes and positions are searched byte by byte."""
ROLES = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
"""Names of the linear layers of a block."""


@dataclass(frozen=True)
class Target:
    """A prunable parameter.

    Attributes
    ----------
    name, shape
        Name and shape in the whole model.
    family
        Name of the group of units that are compared with each other.
    dim, span
        Element i along `dim` belongs to unit i // span. `dim` is None if each element is a unit.
    """

    name: str
    shape: tuple[int, ...]
    family: str
    dim: int | None = None
    span: int = 1


def list_targets(model: Model, pattern: Pattern) -> list[Target]:
    """Return the prunable parameters of the whole model, in model order."""
    return [target for layer in range(model.layers) for target in list_layer_targets(model, pattern, f"blocks.{layer}")]


def list_roles(model: Model, train: Train) -> tuple[str, ...]:
    """Return the names of the prunable parameters within a block."""
    if train.prune is None:
        return ()
    return tuple(target.name.removeprefix("b.") for target in list_layer_targets(model, train.prune.pattern, "b"))


def list_layer_targets(model: Model, pattern: Pattern, block: str) -> list[Target]:
    """Return the prunable parameters of one block."""
    h, wide, span = model.hidden, model.middle, 3 * model.head_dim
    if pattern == "rows":
        family = f"{block}.mlp"
        return [
            Target(f"{family}.up.weight", (wide, h), family, 0),
            Target(f"{family}.up.bias", (wide,), family, 0),
            Target(f"{family}.down.weight", (h, wide), family, 1),
        ]
    if pattern == "heads":
        family = f"{block}.attention"
        return [
            Target(f"{family}.qkv.weight", (3 * h, h), family, 0, span),
            Target(f"{family}.qkv.bias", (3 * h,), family, 0, span),
            Target(f"{family}.out.weight", (h, h), family, 1, span // 3),
        ]
    entry = 2 * wide if model.gated else wide
    shapes = zip(ROLES, ((model.qkv_width, h), (h, h), (entry, h), (h, wide)), strict=True)
    return [Target(f"{block}.{role}.weight", shape, f"{block}.{role}.weight") for role, shape in shapes]


def count_place_bytes(targets: Sequence[Target]) -> int:
    """Count the bytes needed for the index of a weight in the largest target."""
    largest = max(math.prod(target.shape) for target in targets)
    return max(1, -(-(largest - 1).bit_length() // 8))


def count_units(model: Model, pattern: Pattern) -> int:
    """Count the neurons or heads per layer."""
    return model.heads if pattern == "heads" else model.middle
