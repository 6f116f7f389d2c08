"""Which weights can become zero, and which of them become so together. Pure, for the engine and for predictions.

Embeddings, head, norms and biases of rows stay dense, as is usual. A unit is what is chosen as a whole: a single
weight, a neuron of an MLP with its row, its bias and its column, or a head of an attention with its rows, biases and
columns. So a neuron or a head that is chosen adds nothing to the residual stream.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.settings import Pattern

DIGIT = 256
"""Values of a byte: magnitudes and places are searched byte by byte."""
ROLES = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
"""The linear layers of a block."""


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
        Element i of the dim belongs to unit i // span; None where each element is its own unit.
    """

    name: str
    shape: tuple[int, ...]
    family: str
    dim: int | None = None
    span: int = 1


def targets(model: Model, pattern: Pattern) -> list[Target]:
    """Return the parameters of the whole model that can have zeros, in the model's order."""
    return [target for layer in range(model.layers) for target in of_layer(model, pattern, f"blocks.{layer}")]


def roles(model: Model, train: Train) -> tuple[str, ...]:
    """Return the names, within a block, of the parameters that can have zeros."""
    if train.prune is None:
        return ()
    return tuple(target.name.removeprefix("b.") for target in of_layer(model, train.prune.pattern, "b"))


def of_layer(model: Model, pattern: Pattern, block: str) -> list[Target]:
    """Return those of a block."""
    h, wide, span = model.hidden, 4 * model.hidden, 3 * (model.hidden // model.heads)
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
    shapes = zip(ROLES, ((3 * h, h), (h, h), (wide, h), (h, wide)), strict=True)
    return [Target(f"{block}.{role}.weight", shape, f"{block}.{role}.weight") for role, shape in shapes]


def place_bytes(targets: Sequence[Target]) -> int:
    """Return the bytes of the number of a weight in the largest target."""
    largest = max(math.prod(target.shape) for target in targets)
    return max(1, -(-(largest - 1).bit_length() // 8))


def units(model: Model, pattern: Pattern) -> int:
    """Neurons or heads of a layer."""
    return model.heads if pattern == "heads" else 4 * model.hidden
