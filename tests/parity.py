"""Element-wise comparison of a distributed model with the same model on one rank."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.parallel.sharding import Shard
from hpcbench.train.trainer import Trainer

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A rank's part of a parameter. Elements that the rank does not hold are NaN."""

    shard: Shard
    values: Values


@dataclass(frozen=True)
class Whole:
    """Tensors assembled from all ranks.

    Attributes
    ----------
    values
        Values by global name. Elements that no rank holds are NaN.
    replicas_differ
        Largest difference between two ranks that hold the same element.
    """

    values: dict[str, Values]
    replicas_differ: float


def parameters(trainer: Trainer) -> list[Part]:
    """Return the weights that this rank's model uses."""
    return [Part(slot.shard, values.double().cpu().numpy()) for slot, values in trainer.data_parallel.weights()]


def gradients(trainer: Trainer) -> list[Part]:
    """Return the reduced gradients that this rank's optimizer receives."""
    parts = []
    for piece in trainer.data_parallel.pieces:
        for slot, part in piece.bucket.parts(piece.owned):
            local = np.full(slot.parameter.numel(), np.nan)
            first = piece.owned.start + part.start - slot.span.start
            local[first : first + part.stop - part.start] = piece.gradient[part].double().cpu().numpy()
            parts.append(Part(slot.shard, local.reshape(slot.shard.local_shape)))
    return parts


def padding(trainer: Trainer) -> float:
    """Return the largest sum of padding magnitudes over this rank's pieces."""
    pieces = trainer.data_parallel.pieces
    ends = (piece.master[max(piece.bucket.padding.start - piece.owned.start, 0) :] for piece in pieces)
    return max(float(end.double().abs().sum()) for end in ends)


def meet(comm: MPI.Comm) -> None:
    """Wait for the other ranks. Unlike a blocking MPI call, this wait does not occupy a core."""
    Progress(Wait.GIVE_WAY).complete([comm.Ibarrier()])


def assemble(comm: MPI.Comm, parts: list[Part]) -> Whole | None:
    """Assemble the parts of all ranks on rank 0. Return None on other ranks."""
    meet(comm)
    everything = comm.gather(parts)
    if everything is None:
        return None
    values: dict[str, Values] = {}
    differ = 0.0
    for part in (part for rank in everything for part in rank):
        tensor = values.setdefault(part.shard.name, np.full(part.shard.shape, np.nan))
        place = tensor[part.shard.held]
        both = ~np.isnan(place) & ~np.isnan(part.values)
        if both.any():
            differ = max(differ, float(np.abs(place[both] - part.values[both]).max()))
        new = np.isnan(place)
        place[new] = part.values[new]
    return Whole(values, differ)


def relative_error(values: dict[str, Values], reference: dict[str, Values]) -> tuple[float, str]:
    """Return the largest ||a - b|| / ||b|| over all tensors, and the name of the tensor.

    If a value is missing, the error is infinite.
    """
    if values.keys() != reference.keys():
        return float("inf"), f"names differ: {sorted(values.keys() ^ reference.keys())}"
    errors = {}
    for name, expected in reference.items():
        off, size = float(np.linalg.norm(values[name] - expected)), float(np.linalg.norm(expected))
        error = off / size if size else math.inf if off else 0.0
        errors[name] = error if np.isfinite(error) else float("inf")
    worst = max(errors, key=errors.__getitem__)
    return errors[worst], worst
