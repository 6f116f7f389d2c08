"""Script that writes hpcbench/bench/tensors.npz: 8192 values each of a gradient, activation, weight and Adam moment.

The values come from a GPT with 4 layers of width 128, after 60 AdamW steps on the standard library's source text. The
file is committed so that golden streams do not depend on the machine.
"""

import numpy as np
import torch

from hpcbench.bench.data import TENSORS
from hpcbench.contract.training import Data, Model
from hpcbench.train.model import GPT, loss
from hpcbench.train.text import load

SEQ_LEN, BATCH, STEPS, VALUES = 128, 8, 60, 8192


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Model(
        name="tensors",
        layers=4,
        hidden=128,
        heads=4,
        vocab=256,
        positions="rotary",
        rotary_fraction=0.25,
        parallel_residual=True,
        tied=False,
    )
    model = GPT(config, SEQ_LEN)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    corpus = load(Data(source="stdlib", valid_fraction=0.1), SEQ_LEN)
    for step in range(STEPS):
        index = np.arange(step * BATCH, (step + 1) * BATCH, dtype=np.uint64)
        tokens = torch.from_numpy(corpus.window(split="train", key=1, index=index, seq_len=SEQ_LEN))
        optimizer.zero_grad()
        value = loss(model(tokens[:, :-1]), tokens[:, 1:])
        value.backward()
        optimizer.step()
    parameter = model.blocks["1"].mlp.up.weight
    inner: list[torch.Tensor] = []
    model.blocks["2"].register_forward_hook(lambda module, arguments, output: inner.append(output.detach()))
    model(tokens[:, :-1])
    tensors = {
        "gradient": parameter.grad,
        "activation": inner[0],
        "weight": parameter.detach(),
        "moment": optimizer.state[parameter]["exp_avg"],
    }
    print(f"loss {value.item():.3f} after {STEPS} steps")
    arrays = {name: tensor.numpy().ravel()[:VALUES].astype(np.float32) for name, tensor in tensors.items()}
    np.savez_compressed(TENSORS, **arrays)


if __name__ == "__main__":
    main()
