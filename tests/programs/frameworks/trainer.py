"""Random GPT-2 trained with the transformers Trainer. Each rank prints the losses and a digest of the parameters."""

import hashlib
import json
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sums(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = [index % 61, index % 47]
        while len(tokens) < 16:
            tokens.append((tokens[-1] + tokens[-2]) % 64)
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(tokens)}


torch.set_num_threads(1)
torch.manual_seed(3)
with tempfile.TemporaryDirectory() as directory:
    settings = TrainingArguments(
        output_dir=directory,
        max_steps=4,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
    )
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2)
    trainer = Trainer(model=GPT2LMHeadModel(config), args=settings, train_dataset=Sums())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    flat = torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    print("result " + json.dumps({"rank": dist.get_rank(), "losses": losses, "digest": digest}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
