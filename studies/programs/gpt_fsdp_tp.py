"""A perceptron with tensor parallelism and FSDP2. The script does not import hpcbench.

    torchrun --nproc-per-node 4 gpt_fsdp_tp.py --steps 20

It predicts the next byte of the text of Python's library from the previous bytes, and prints a line for each step.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

CONTEXT = 16


class Net(nn.Module):
    """Bytes in, one byte out."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width // CONTEXT)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, 256)

    def forward(self, x: Tensor) -> Tensor:
        """Bytes in, scores of the next byte out."""
        values = self.embed(x).flatten(1)
        for layer in self.layers:
            values = values + layer(functional.layer_norm(values, values.shape[-1:]))
        logits: Tensor = self.head(values)
        return logits


def main() -> None:
    """Train, and print each step."""
    parser = argparse.ArgumentParser()
    for name, value in {"steps": 20, "width": 256, "layers": 2, "batch": 32, "tp": 2, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size() // asked.tp, asked.tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(asked.seed)
    net = Net(asked.width, asked.layers)
    for layer in net.layers:
        parallelize_module(layer, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in files)[: 1 << 20]), dtype=torch.uint8)
    replica = mesh.get_local_rank("dp")
    chance, fixed = (torch.Generator().manual_seed(seed) for seed in (asked.seed * 1000 + replica, 7))

    def loss_of(data: Tensor, generator: torch.Generator, size: int) -> Tensor:
        begins = torch.randint(len(data) - CONTEXT, (size,), generator=generator)
        pieces = data[begins[:, None] + torch.arange(CONTEXT + 1)].long()
        return functional.cross_entropy(net(pieces[:, :-1]), pieces[:, -1])

    for step in range(1, asked.steps + 1):
        begin = time.perf_counter()
        loss = loss_of(text[:-65536], chance, asked.batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{step} of {asked.steps}: {loss.item():.5f} in {time.perf_counter() - begin:.5f} s", flush=True)
    with torch.no_grad():
        held = loss_of(text[-65536:], fixed, 1024)
    if dist.get_rank() == 0:
        print(f"held out after {asked.steps}: {held.item():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
