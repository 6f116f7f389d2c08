"""Run directories with stored messages of known content."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpcbench.contract import message_samples
from hpcbench.contract.message_samples import MessagePart, SampledMessage, SampledStep

Matrix = NDArray[np.float64]


def gaussian(shape: tuple[int, int], seed: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape)


def low(shape: tuple[int, int], rank: int, seed: int, noise: float = 0.0) -> Matrix:
    """Return this rank's matrix with some noise."""
    left, right = gaussian((shape[0], rank), seed), gaussian((rank, shape[1]), seed + 1)
    result: Matrix = left @ right + noise * gaussian(shape, seed + 2)
    return result


def message(channel: str, matrices: Mapping[str, Matrix], place: int = 0, dtype: str = "float32") -> SampledMessage:
    """Return a message that contains these matrices one after another, followed by some values."""
    parts, begin = [], 0
    for name, matrix in matrices.items():
        parts.append(MessagePart(name, matrix.shape, begin))
        begin += matrix.size
    flat = np.concatenate([*(matrix.reshape(-1) for matrix in matrices.values()), np.ones(5)]).astype(dtype)
    return SampledMessage(channel, "all-reduce", place, dtype, flat.size, tuple(parts), flat.tobytes())


def write_run(
    root: Path, steps: Mapping[int, Sequence[SampledMessage]], scheme: str = "baseline", batch: int = 64
) -> Path:
    """Write the run directory with a rank's messages for each step, with 64 tokens per sample."""
    directory = root / "runs" / f"r1-{scheme}"
    (directory / message_samples.DIRECTORY).mkdir(parents=True)
    about = {
        "run": directory.name,
        "scheme": {"name": scheme},
        "model": {"name": "mini"},
        "train": {"global_batch": batch, "micro_batch": 1, "seq_len": 64, "zero": 1},
        "layout": {"dp": 2, "cp": 1},
    }
    (directory / "run.json").write_text(json.dumps(about))
    for step, messages in steps.items():
        message_samples.write_samples(directory / message_samples.DIRECTORY, SampledStep(3, step, tuple(messages)))
    return directory
