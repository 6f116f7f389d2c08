"""Learning rate schedule."""

import math

from hpcbench.contract.training import Train


def learning_rate(step: int, train: Train) -> float:
    """Return the learning rate of step `step` (counted from 0).

    A linear warm-up is followed by a cosine decay, which reaches the minimum learning rate at the last step.
    """
    if step < train.warmup_steps:
        return train.lr * (step + 1) / train.warmup_steps
    progress = (step - train.warmup_steps) / max(1, train.steps - 1 - train.warmup_steps)
    return train.lowest_lr + (train.lr - train.lowest_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
