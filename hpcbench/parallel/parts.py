"""Chunks of the model that a pipeline stage holds, as separate modules."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.parallelize import Stack
from hpcbench.parallel.sharding import Held


def parts_of(model: Stack, mesh: Mesh, layers: int) -> list[nn.Module]:
    """Return the chunks of this rank's stage, in model order.

    The pipeline cuts the model into ``pp * chunks`` parts, and stage r holds parts ``c * pp + r`` as its chunks (arXiv
    2104.04473, section 2.2). The first part contains the embedding, and the last part contains the head. For any number
    of chunks, the first part is on the first stage, and the last part is on the last stage.

    Parameters
    ----------
    model
        The model after `parallelize`. The chunks share the layers of this model, and the parameters keep their names.
    mesh
        Mesh whose layout determines how the model is cut.
    layers
        Number of layers of the whole model.
    """
    parts: list[nn.Module] = []
    mine = mesh.layout.layers_of(layers)[mesh.pp.rank :: mesh.pp.size]
    for chunk, held in enumerate(mine):
        part: Any = copy.copy(model)
        part._modules = dict(part._modules)
        part.blocks = nn.ModuleDict({str(layer): model.blocks[str(layer)] for layer in held})
        if chunk:
            part.embedding = None
        if chunk < len(mine) - 1:
            part.norm = part.head = None
        parts.append(part)
    return parts


def held_by(part: nn.Module, held: Sequence[Held]) -> list[Held]:
    """Return the parameters of this rank that belong to the part."""
    identities = {id(parameter) for parameter in part.parameters()}
    return [item for item in held if id(item.parameter) in identities]
