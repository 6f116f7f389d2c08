"""Makes a plain model parallel, in place and in this order: stage, split layers, record shards, fill in weights."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hpcbench.comm.channel import Dimension, Kind, Phase
from hpcbench.comm.plan import shards
from hpcbench.comm.policy import Policy
from hpcbench.parallel.linear import SHARDED_DIMS, ColumnLinear, RowLinear
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.sharding import Shard

Initial = Callable[[Shard, torch.dtype], Tensor]
"""Gives the values of the part of a parameter that a rank holds."""


class Stack(Protocol):
    """What a model must look like: blocks between an embedding and a norm with a head."""

    embedding: Any
    blocks: nn.ModuleDict
    norm: Any
    head: Any
    tensor_parallel: dict[str, str]


def parallelize(
    model: Stack, *, mesh: Mesh, policy: Policy, dtype: torch.dtype, device: str, tied: bool, initial: Initial
) -> nn.Module:
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
    initial
        Gives the values.

    Returns
    -------
    The same model. Each parameter carries its `Shard`.
    """
    module = model
    assert isinstance(module, nn.Module)
    whole = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    _keep_stage(model, mesh)
    _split_layers(module, model.tensor_parallel, mesh, policy)
    _record_shards(module, whole, mesh)
    if tied:
        _tie(model, mesh)
    for parameter in module.parameters():
        _materialize(module, parameter, initial, dtype, device)
    return module


def _keep_stage(model: Stack, mesh: Mesh) -> None:
    mine = shards(len(model.blocks), mesh.pp.size)[mesh.pp.rank]
    keys = list(model.blocks)
    model.blocks = nn.ModuleDict({key: model.blocks[key] for key in keys[mine]})
    if not mesh.first_stage:
        model.embedding = None
    if not mesh.last_stage:
        model.norm = model.head = None


def _split_layers(module: nn.Module, table: dict[str, str], mesh: Mesh, policy: Policy) -> None:
    if mesh.tp.size == 1:
        return
    forward = policy.channel(Dimension.TP, Phase.FORWARD, Kind.ACT)
    backward = policy.channel(Dimension.TP, Phase.BACKWARD, Kind.GRAD)
    for name, layer in list(module.named_modules()):
        way = next((way for suffix, way in table.items() if name.endswith(suffix)), None)
        if way is None:
            continue
        assert isinstance(layer, nn.Linear)
        parent_name, _, attribute = name.rpartition(".")
        split = ColumnLinear(layer, mesh.tp, backward) if way == "column" else RowLinear(layer, mesh.tp, forward)
        setattr(module.get_submodule(parent_name), attribute, split)


def _record_shards(module: nn.Module, whole: dict[str, tuple[int, ...]], mesh: Mesh) -> None:
    for name, parameter in module.named_parameters():
        layer_name, _, attribute = name.rpartition(".")
        dim = SHARDED_DIMS.get(type(module.get_submodule(layer_name)), {}).get(attribute)
        parameter.shard = Shard(name, whole[name], dim, mesh.tp.rank, mesh.tp.size)  # type: ignore[attr-defined]


def _tie(model: Stack, mesh: Mesh) -> None:
    name = "embedding.tokens.weight"
    if mesh.first_stage and mesh.last_stage:
        model.head.weight = model.embedding.tokens.weight
    elif mesh.last_stage:
        shape = model.head.weight.shard.shape
        model.head.weight.shard = Shard(name, shape, None, mesh.tp.rank, mesh.tp.size, tied_copy=True)
        model.head.weight.alone = True
    elif mesh.first_stage:
        model.embedding.tokens.weight.alone = True


def _materialize(
    module: nn.Module, parameter: nn.Parameter, initial: Initial, dtype: torch.dtype, device: str
) -> None:
    shard: Shard = parameter.shard  # type: ignore[attr-defined]
    filled = nn.Parameter(initial(shard, dtype).to(device))
    filled.shard = shard  # type: ignore[attr-defined]
    filled.alone = getattr(parameter, "alone", False)  # type: ignore[attr-defined]
    for layer in module.modules():
        for attribute, value in list(layer.named_parameters(recurse=False)):
            if value is parameter:
                setattr(layer, attribute, filled)
