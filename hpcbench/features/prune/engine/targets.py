"""Weights that can become zero, and the units in which they are selected, for the engine and for predictions.

Embeddings, head, norms and biases of rows stay dense, as is usual. A unit is selected as a whole: a single weight, a
neuron of an MLP with its row, bias and column, or an attention head with its rows, biases and columns. So a neuron or
head that becomes zero adds nothing to the residual stream.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.settings import Pattern

DIGIT = 256
"""Number of values of a byte. Magnitudes and places are searched byte by byte."""
ROLES = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
"""Names of the linear layers of a block."""


@dataclass(frozen=True)
class Target:
    """A parameter that can have zeros.

    Attributes
    ----------
    name, shape
        Name and shape in the whole model.
    family
        Name of the units that are compared with each other.
    dim, span
        Element i of the dim belongs to unit i // span; None if each element is a unit.
    """

    name: str
    shape: tuple[int, ...]
    family: str
    dim: int | None = None
    span: int = 1


def list_targets(model: Model, pattern: Pattern) -> list[Target]:
    """Return the parameters of the whole model that can have zeros, in the model's order."""
    return [target for layer in range(model.layers) for target in list_layer_targets(model, pattern, f"blocks.{layer}")]


def list_roles(model: Model, train: Train) -> tuple[str, ...]:
    """Return the names, within a block, of the parameters that can have zeros."""
    if train.prune is None:
        return ()
    return tuple(target.name.removeprefix("b.") for target in list_layer_targets(model, train.prune.pattern, "b"))


def list_layer_targets(model: Model, pattern: Pattern, block: str) -> list[Target]:
    """Return the parameters of one block that can have zeros."""
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
    """Count the bytes of the index of a weight in the largest target."""
    largest = max(math.prod(target.shape) for target in targets)
    return max(1, -(-(largest - 1).bit_length() // 8))


def count_units(model: Model, pattern: Pattern) -> int:
    """Count the neurons or heads of a layer."""
    return model.heads if pattern == "heads" else model.middle
