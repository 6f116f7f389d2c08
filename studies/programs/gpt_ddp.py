"""A small GPT on the text of Python's own library, with DistributedDataParallel. The script does not import hpcbench.

    torchrun --nproc-per-node 4 gpt_ddp.py --steps 20

It prints its steps in the format of nanoGPT. `--hook` selects one of PyTorch's own ways to compress gradients.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """Attention and a perceptron, each added to what it is given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Values in, values out."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """A GPT over bytes."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Bytes in, scores of the next bytes out."""
        seen = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(seen)))
        return logits


def text() -> Tensor:
    """Two megabytes of Python."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)[: 2 << 20]), dtype=torch.uint8)


def batch(data: Tensor, size: int, length: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random pieces of the text, and the same one byte on."""
    begins = torch.randint(len(data) - length - 1, (size,), generator=chance)
    pieces = torch.stack([data[begin : begin + length + 1] for begin in begins.tolist()]).long()
    return pieces[:, :-1], pieces[:, 1:]


def compress_to_bf16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Send gradients as bfloat16. Under its own name, DistributedDataParallel refuses the hook on CPUs."""
    return default_hooks.bf16_compress_hook(None, bucket)


def main() -> None:
    """Train, and print each step."""
    parser = argparse.ArgumentParser()
    for name, value in {"steps": 20, "layers": 2, "width": 128, "heads": 4, "length": 64, "batch": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hook", choices=["none", "bf16", "powersgd"], default="none")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(asked.seed)
    # With several buckets, PowerSGD's second sums may start in another order on another rank. gloo does not allow that.
    megabytes = 1000 if asked.hook == "powersgd" else None
    net = DistributedDataParallel(Gpt(asked.layers, asked.width, asked.heads, asked.length), bucket_cap_mb=megabytes)
    if asked.hook == "bf16":
        net.register_comm_hook(None, compress_to_bf16)
    elif asked.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.AdamW(net.parameters(), lr=asked.lr)
    data = text()
    train, held = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]
    chance = torch.Generator().manual_seed(asked.seed * 1000 + rank)

    def loss_of(pieces: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(net(pieces[0]).flatten(0, 1), pieces[1].flatten())

    for step in range(1, asked.steps + 1):
        begin = time.perf_counter()
        loss = loss_of(batch(train, asked.batch, asked.length, chance))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            ms = (time.perf_counter() - begin) * 1000
            print(f"iter {step}: loss {loss.item():.4f}, time {ms:.2f}ms, mfu -100.00%", flush=True)
    with torch.no_grad():
        fixed = torch.Generator().manual_seed(7)
        valid = torch.stack([loss_of(batch(held, 8, asked.length, fixed)) for _ in range(4)]).mean()
    if rank == 0:
        print(f"step {asked.steps}: train loss {loss.item():.4f}, val loss {valid.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
