"""A small GPT on the text of Python's own library, with ZeRO of DeepSpeed. The script does not import hpcbench.

    torchrun --nproc-per-node 2 gpt_deepspeed.py --zero 1 --communication bf16

It prints its steps in the format of nanoGPT. `--communication` is DeepSpeed's `communication_data_type`.
"""

import argparse
import os
import time
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

LENGTH = 64


class Gpt(nn.Module):
    """A GPT over bytes."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Bytes in, scores of the next bytes out."""
        embedded = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        scores: Tensor = self.head(self.blocks(embedded, mask=self.mask))
        return scores


def read_text() -> Tensor:
    """Two megabytes of Python."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)[: 2 << 20]), dtype=torch.uint8)


def main() -> None:
    """Train, and print each step."""
    parser = argparse.ArgumentParser()
    for name, value in {"steps": 20, "layers": 2, "width": 128, "batch": 4, "zero": 1, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--communication", choices=["fp32", "bf16"], default="fp32")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(asked.seed)
    net = Gpt(asked.layers, asked.width)
    settings = {
        "train_micro_batch_size_per_gpu": asked.batch,
        "zero_optimization": {"stage": asked.zero, "stage3_param_persistence_threshold": 0},
        "zero_force_ds_cpu_optimizer": False,
        "communication_data_type": asked.communication,
    }
    # Otherwise, each process would search for compilers, and compile an extension that training over Gloo does not use.
    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.init_distributed("gloo")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=settings)
    rank = dist.get_rank()
    data = read_text()
    train, held = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]
    chance, fixed = (torch.Generator().manual_seed(seed) for seed in (asked.seed * 1000 + rank, 7))

    def loss_of(text: Tensor, size: int, generator: torch.Generator) -> Tensor:
        begins = torch.randint(len(text) - LENGTH - 1, (size,), generator=generator)
        pieces = torch.stack([text[begin : begin + LENGTH + 1] for begin in begins.tolist()]).long()
        return functional.cross_entropy(engine(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())

    for step in range(1, asked.steps + 1):
        begin = time.perf_counter()
        loss = loss_of(train, asked.batch, chance)
        engine.backward(loss)
        engine.step()
        if rank == 0:
            ms = (time.perf_counter() - begin) * 1000
            print(f"iter {step}: loss {loss.item():.4f}, time {ms:.2f}ms, mfu -100.00%", flush=True)
    with torch.no_grad():
        valid = torch.stack([loss_of(held, 8, fixed) for _ in range(4)]).mean()
    if rank == 0:
        print(f"step {asked.steps}: train loss {loss.item():.4f}, val loss {valid.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
