"""Worker that compares single model layers split over ranks with undivided layers: values and gradients.

Prints JSON lines.
"""

import json
from contextlib import nullcontext

import faults
import shared_text
import torch
from mpi4py import MPI
from runs import run_of
from torch import Tensor

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import cut_evenly
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = shared_text.corpus()
LAYERS = ("attention", "mlp", "norm1", "")
"""Layers of a transformer block. The empty name denotes the block itself."""
FAULTS = ("reduce_left_out", "backward_reduce_left_out", "row_split_swapped")


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_trainer(name: str, tp: int, comm: MPI.Comm, *, spread: bool) -> Trainer:
    return Trainer(run_of(name, Layout(tp=tp), sequence_parallel=spread), comm, Progress(Wait.GIVE_WAY), CORPUS)


def compared(split: Trainer, reference: Trainer, layer: str, *, spread: bool) -> dict[str, float]:
    """Return errors relative to the norms of the undivided layer, each the maximum over ranks."""
    path = ".".join(filter(None, ("blocks.1", layer)))
    size = split.run.train.seq_len
    positions = cut_evenly(size, WORLD.size)[WORLD.rank] if spread else slice(0, size)
    x, upstream = (random(2, size, split.run.model.hidden, seed=seed) for seed in (1, 2))  # [b, s, h]
    inputs = []
    results = []
    for trainer, part in ((split, positions), (reference, slice(0, size))):
        for parameter in trainer.module.parameters():
            parameter.grad = None
        inputs.append(x[:, part].clone().requires_grad_())  # [b, s, h] -> [b, s/t, h] with sequence parallelism
        result = trainer.module.get_submodule(path)(inputs[-1])
        result.backward(upstream[:, part])
        results.append(result.detach())
    pairs = {"result": (results[0], results[1][:, positions]), "input": (inputs[0].grad, inputs[1].grad[:, positions])}
    theirs = dict(reference.module.named_parameters())
    for name, parameter in split.module.named_parameters():
        if name.startswith(path + "."):
            (shard,) = (shard for held, shard in split.held if held is parameter)
            gradient = parameter.grad
            if shard.partial:
                gradient = torch.from_numpy(WORLD.allreduce(gradient.numpy()))
            pairs[name] = gradient, theirs[name].grad[shard.held]
    errors = {name: float((a - b).norm() / b.norm()) for name, (a, b) in pairs.items()}
    return {name: max(WORLD.allgather(error)) for name, error in errors.items()}


def main() -> None:
    for fault in (None, *FAULTS):
        for name in ("neox", "gpt2"):
            reference = make_trainer(name, 1, MPI.COMM_SELF, spread=False)
            for spread in (False,) if fault else (False, True):
                with faults.FAULTS[fault].plant() if fault else nullcontext():
                    split = make_trainer(name, WORLD.size, WORLD.Dup(), spread=spread)
                    for layer in LAYERS:
                        errors = compared(split, reference, layer, spread=spread)
                        if WORLD.rank == 0:
                            case = {"fault": fault, "model": name, "spread": spread, "layer": layer}
                            print(json.dumps({**case, "errors": errors}), flush=True)


if __name__ == "__main__":
    main()
