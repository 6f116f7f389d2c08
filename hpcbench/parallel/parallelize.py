"""Makes a plain model parallel, in place and in this order: stage, split layers, record shards, make parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from hpcbench.comm.policy import Policy
from hpcbench.parallel.linear import ColumnLinear, RowLinear
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.regions import WHOLE, Border, Stream
from hpcbench.parallel.sharding import Held, Shard, Tied
from hpcbench.parallel.vocabulary import PositionEmbedding, VocabularyEmbedding

SPLIT: dict[str, Callable[[Any, Border], nn.Module]] = {
    "column": ColumnLinear,
    "row": RowLinear,
    "vocabulary": VocabularyEmbedding,
    "positions": PositionEmbedding,
}
"""What takes the place of a plain layer, by the word that the model's table has for it."""


class Stack(Protocol):
    """What a model must look like: blocks between an embedding and a norm with a head."""

    embedding: Any
    blocks: nn.ModuleDict
    norm: Any
    head: Any
    tensor_parallel: dict[str, str]


def parallelize(
    model: Stack,
    *,
    mesh: Mesh,
    policy: Policy,
    dtype: torch.dtype,
    device: str,
    tied: bool,
    stream: Stream = WHOLE,
) -> list[Held]:
    """Leave in `model` what this rank holds.

    Parameters
    ----------
    model
        Built on the ``meta`` device, so that no rank ever holds the whole.
    mesh
        Its pipeline group cuts the blocks, its tensor group the layers that ``model.tensor_parallel`` names.
    policy
        Gives the channels of the tensor-parallel traffic.
    dtype, device
        Of the parameters.
    tied
        The head uses the embedding's weight.
    stream
        How the residual stream lies between the split layers.

    Returns
    -------
    The parameters that this rank holds, in the model's order, without values: buckets fill them in, so that no
    rank need ever hold them all.
    """
    module = model
    assert isinstance(module, nn.Module)
    whole = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    _keep_stage(model, mesh)
    if mesh.tp.size > 1:
        _split_layers(module, model.tensor_parallel, Border.of(mesh.tp, stream, policy))
    shards_by_name = _record_shards(module, whole, mesh, stream)
    if tied:
        _tie(model, shards_by_name, mesh)
    held = []
    for name, shard in shards_by_name.items():
        layer_name, _, attribute = name.rpartition(".")
        parameter = nn.Parameter(torch.empty((), dtype=dtype, device=device).expand(shard.local_shape))
        setattr(module.get_submodule(layer_name), attribute, parameter)
        held.append(Held(parameter, shard))
    if tied and mesh.pp.size == 1:
        model.head.weight = model.embedding.tokens.weight
    return held


def _keep_stage(model: Stack, mesh: Mesh) -> None:
    """All parts of the stage together; `hpcbench.parallel.parts` tells them apart again."""
    mine = mesh.layout.layers_of(len(model.blocks))[mesh.pp.rank :: mesh.pp.size]
    keys = list(model.blocks)
    model.blocks = nn.ModuleDict({keys[layer]: model.blocks[keys[layer]] for part in mine for layer in part})
    if not mesh.first_stage:
        model.embedding = None
    if not mesh.last_stage:
        model.norm = model.head = None


def _split_layers(module: nn.Module, table: dict[str, str], border: Border) -> None:
    for name, layer in list(module.named_modules()):
        way = next((way for suffix, way in table.items() if name.endswith(suffix)), None)
        if way is not None:
            parent_name, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent_name), attribute, SPLIT[way](layer, border))


def _record_shards(
    module: nn.Module, whole: dict[str, tuple[int, ...]], mesh: Mesh, stream: Stream
) -> dict[str, Shard]:
    records = {}
    for name, _ in module.named_parameters():
        layer_name, _, attribute = name.rpartition(".")
        dim = getattr(module.get_submodule(layer_name), "sharded_dims", {}).get(attribute)
        partial = stream.spread and mesh.tp.size > 1 and dim is None
        records[name] = Shard(name, whole[name], dim, mesh.tp.rank, mesh.tp.size, partial=partial)
    return records


def _tie(model: Stack, records: dict[str, Shard], mesh: Mesh) -> None:
    """The head's weight is the embedding's: the same parameter on one stage, a copy kept equal on two."""
    embedding, head = "embedding.tokens.weight", "head.weight"
    if mesh.pp.size == 1:
        del records[head]
    elif mesh.first_stage:
        records[embedding] = replace(records[embedding], tied=Tied.OWNER)
    elif mesh.last_stage:
        records[head] = replace(records[head], name=embedding, tied=Tied.COPY)
