"""Construction of a rank's part of the model, and of the engine that reduces gradients and stores weights."""

from dataclasses import dataclass

import torch
from torch import nn

from hpcbench.comm.policy import Policy
from hpcbench.contract.run import Run
from hpcbench.contract.sparse_fit import may_send_rows
from hpcbench.features.prune.engine.masks import make_masks
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.buckets import make_buckets
from hpcbench.parallel.context.attention import Positions
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.experts.spread import spread_experts
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.parallel.parallelize import parallelize
from hpcbench.parallel.parts import held_by, parts_of
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.parallel.sparse.touched import Touched
from hpcbench.parallel.tensor import Tensors, tensors_of
from hpcbench.train import initial
from hpcbench.train.experts import ExpertMLP
from hpcbench.train.model import GPT
from hpcbench.train.precision import DTYPES


@dataclass(frozen=True)
class Built:
    """One rank's part of the model, with uninitialized parameters.

    Attributes
    ----------
    module
        The rank's part of the model as a module.
    held
        Parameters of the rank.
    parts
        Chunks that the pipeline executes, in model order.
    tensors
        Method of tensor parallelism.
    positions
        Positions of a sample that the rank holds.
    routed
        Mixture-of-experts layers, keyed by layer number.
    touched
        Record of the touched rows of the token embedding, if its gradient may be sent as rows.
    """

    module: GPT
    held: list[Held]
    parts: list[nn.Module]
    tensors: Tensors
    positions: Positions
    routed: dict[int, ExpertMLP]
    touched: Touched | None


def build(run: Run, mesh: Mesh, policy: Policy) -> Built:
    """Build the model on the meta device, and keep only this rank's part."""
    model, train = run.model, run.train
    tensors = tensors_of(mesh, policy, by_positions=train.sequence_parallel, overlap=train.overlap)
    with torch.device("meta"):
        module = GPT(model, train.seq_len)
    held = parallelize(
        module,
        mesh=mesh,
        tensors=tensors,
        dtype=DTYPES[train.precision],
        device=run.device,
        tied=model.tied,
        by_rows=may_send_rows(model, train, run.layout.tensor),
    )
    table = next((shard for _, shard in held if shard.by_rows), None)
    touched = Touched(module.get_submodule("embedding.tokens"), table.held[0]) if table else None
    positions = Positions(mesh, policy, overlap=train.overlap)
    positions.put_into(module)
    spread_experts(module, mesh, policy, model.experts, overlap=train.overlap)
    blocks = {int(name): block.mlp for name, block in module.blocks.items()}
    routed = {number: mlp for number, mlp in blocks.items() if isinstance(mlp, ExpertMLP)}
    return Built(module, held, parts_of(module, mesh, model.layers), tensors, positions, routed, touched)


def engine_of(run: Run, built: Built, mesh: Mesh, policy: Policy) -> DataParallel:
    """Create the engine for the optimizer of the run. The engine initializes the parameters, bucket by bucket."""
    model, train = run.model, run.train

    def values(shard: Shard, dtype: torch.dtype) -> torch.Tensor:
        return initial.values(shard.name, shard.shape, held=shard.held, config=model, seed=train.seed, dtype=dtype)

    # from the last part to the first, the order in which gradients arrive and weights are gathered and freed
    buckets = (
        bucket
        for part in reversed(built.parts)
        for bucket in make_buckets(
            held_by(part, built.held),
            limit_bytes=train.bucket_mb * 1e6,
            replicas=run.layout.replicas,
            initial=values,
        )
    )
    adam = AdamW(train.beta1, train.beta2, train.eps, train.weight_decay)
    if train.freeze_step is not None:
        return OneBitAdam(
            buckets, mesh=mesh, policy=policy, adam=adam, freeze_step=train.freeze_step, overlap=train.overlap
        )
    return DataParallel(
        buckets,
        mesh=mesh,
        policy=policy,
        zero=train.zero,
        adam=adam,
        overlap=train.overlap,
        stacks=built.parts,
        node_copy=train.node_copy,
        offload=train.offload,
        touched=built.touched,
        always_by_rows=train.sparse_gradients == "always",
        masks=make_masks(model, train, mesh=mesh, exact=policy.exact),
    )
