"""In-place parallelization of a model: removal of other stages, splitting of layers, and recording of shards."""

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from hpcbench.contract.grid import OF_EXPERTS
from hpcbench.contract.shards import cut_evenly
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.sharding import Cut, Held, Shard, Tied
from hpcbench.parallel.tensor import Tensors

TOKENS = "embedding.tokens.weight"
"""Required name of the token embedding table in a model."""


class Stack(Protocol):
    """Required structure of a model: an embedding, blocks, a norm, and a head."""

    embedding: Any
    blocks: nn.ModuleDict
    norm: Any
    head: Any
    tensor_parallel: dict[str, str]


def parallelize(
    model: Stack,
    *,
    mesh: Mesh,
    tensors: Tensors,
    dtype: torch.dtype,
    device: str,
    tied: bool,
    by_rows: bool = False,
) -> list[Held]:
    """Reduce `model` in-place to the part of this rank.

    Parameters
    ----------
    model
        Model on the ``meta`` device, so that no rank ever allocates the whole model.
    mesh
        Mesh whose pipeline group divides the blocks.
    tensors
        Method of tensor parallelism, which splits the layers listed in ``model.tensor_parallel``.
    dtype, device
        Dtype and device of the parameters.
    tied
        Whether the head and the embedding share one weight.
    by_rows
        Whether the gradient of the embedding may be sent as touched rows.

    Returns
    -------
    The parameters that this rank holds, in model order and without values. Buckets fill in the values later, so no rank
    needs memory for all values.
    """
    module = model
    assert isinstance(module, nn.Module)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    _keep_stage(model, mesh)
    _keep_experts(module, mesh)
    split_layers(module, model.tensor_parallel, tensors)
    for block in model.blocks.values():
        tensors.link([layer for name, layer in block.named_modules() if _word(name, model.tensor_parallel)])
    shards_by_name = _record_shards(module, shapes, model.tensor_parallel, mesh, spread=tensors.spread)
    if tied:
        _tie(model, shards_by_name, mesh)
    if by_rows and mesh.first_stage:
        shards_by_name[TOKENS] = replace(shards_by_name[TOKENS], by_rows=True)
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
    """Remove the parts of other stages. `hpcbench.parallel.parts` separates the chunks of this stage."""
    mine = mesh.layout.layers_of(len(model.blocks))[mesh.pp.rank :: mesh.pp.size]
    keys = list(model.blocks)
    model.blocks = nn.ModuleDict({keys[layer]: model.blocks[keys[layer]] for part in mine for layer in part})
    if not mesh.first_stage:
        model.embedding = None
    if not mesh.last_stage:
        model.norm = model.head = None


def _keep_experts(module: nn.Module, mesh: Mesh) -> None:
    """Remove the experts of other ranks. The remaining experts keep their names."""
    for layer in list(module.modules()) if mesh.ep else []:
        experts = getattr(layer, "experts", None)
        if isinstance(experts, nn.ModuleDict) and mesh.ep:
            mine = list(experts)[cut_evenly(len(experts), mesh.ep.size)[mesh.ep.rank]]
            layer.experts = nn.ModuleDict({name: experts[name] for name in mine})


def _word(name: str, table: dict[str, str]) -> str | None:
    """Return the table entry of a layer. A star in the table matches one component of the layer name."""
    parts = name.split(".")
    for pattern, word in table.items():
        wanted = pattern.split(".")
        if len(wanted) <= len(parts) and all(
            pattern in ("*", part) for pattern, part in zip(wanted, parts[-len(wanted) :], strict=True)
        ):
            return word
    return None


def split_layers(module: nn.Module, table: dict[str, str], tensors: Tensors) -> None:
    """Replace the layers listed in the table. The parameters of the new layers are uninitialized."""
    for name, layer in list(module.named_modules()):
        word = _word(name, table)
        if word is not None:
            parent_name, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent_name), attribute, tensors.split(layer, word))


def _record_shards(
    module: nn.Module, shapes: dict[str, tuple[int, ...]], table: dict[str, str], mesh: Mesh, *, spread: bool
) -> dict[str, Shard]:
    grid, rank, records = mesh.grid, mesh.tp.rank, {}
    for name, _ in module.named_parameters():
        layer_name, _, attribute = name.rpartition(".")
        word = _word(layer_name, table)
        if word is None:
            raise ValueError(
                f"{name}: the model's tensor-parallel table does not contain {layer_name}: add the layer to the table"
            )
        cuts = grid.cuts(word, attribute)
        alike = grid.list_sharing_axes(cuts)
        records[name] = Shard(
            name,
            shapes[name],
            tuple(Cut(grid.index(rank, axes), grid.count(axes)) for axes in cuts),
            alike,
            grid.index(rank, alike),
            grid.count(alike),
            partial=spread and alike != (),
            ep=mesh.layout.ep if word.startswith(OF_EXPERTS) else 1,
        )
    return records


def _tie(model: Stack, records: dict[str, Shard], mesh: Mesh) -> None:
    """Tie the head weight to the embedding: one shared parameter on one stage, or synchronized copies on two stages."""
    head = "head.weight"
    if mesh.pp.size == 1:
        del records[head]
    elif mesh.first_stage:
        records[TOKENS] = replace(records[TOKENS], tied=Tied.OWNER)
    elif mesh.last_stage:
        records[head] = replace(records[head], name=TOKENS, tied=Tied.COPY)
