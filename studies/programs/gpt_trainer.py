"""A random GPT-2 with the Trainer of transformers: it does not import hpcbench.

    torchrun --nproc-per-node 2 gpt_trainer.py --steps 20

The Trainer prints a dictionary for each step, with neither its number nor its time.
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sums(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences in which each token is the sum of the two before it."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = [index % 61, index % 47]
        while len(tokens) < 32:
            tokens.append((tokens[-1] + tokens[-2]) % 64)
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(tokens)}


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    with tempfile.TemporaryDirectory() as directory:
        settings = TrainingArguments(
            output_dir=directory,
            max_steps=asked.steps,
            per_device_train_batch_size=8,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=asked.seed,
        )
        config = GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2)
        Trainer(model=GPT2LMHeadModel(config), args=settings, train_dataset=Sums(), eval_dataset=Sums()).train()


main()
