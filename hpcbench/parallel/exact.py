"""Sums of scalars that are bitwise identical on all ranks, and a check that replicas agree."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.parallel import flat
from hpcbench.parallel.buffers import to_host

CHUNK = 1 << 22
"""Number of elements in GPU memory that are converted to fp64 at a time."""


def square_sum(x: Tensor) -> float:
    """Sum the squares of `x`, [n], in fp64. The dtype of `x` is fp32 or fp64."""
    if x.device.type == "cpu":
        return flat.squares(x)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for part in torch.split(x, CHUNK):
        wide = part.double()
        total += torch.dot(wide, wide)
    return float(total)


def gather(group: Group, values: Sequence[float], exact: Channel) -> list[list[float]]:
    """Gather the values of every rank, in rank order."""
    sent = np.asarray(values, dtype=np.float64)
    everyone = np.full(sent.size * group.size, np.nan)
    group.all_gather(sent, everyone, channel=exact).wait()
    return [list(map(float, row)) for row in everyone.reshape(group.size, sent.size)]


def exact_sum(group: Group, values: Sequence[float], exact: Channel) -> list[float]:
    """Sum the values of all ranks. Every rank adds in rank order, so the results are bitwise identical."""
    return [sum(column) for column in zip(*gather(group, values, exact), strict=True)]


def everyones_counts(group: Group, counts: Mapping[int, int], exact: Channel) -> list[dict[int, int]]:
    """Gather the counts of every rank, in rank order. The keys of the counts are non-negative integers."""
    length = round(max(most for (most,) in gather(group, [float(max(counts, default=0) + 1)], exact)))
    rows = gather(group, [float(counts.get(k, 0)) for k in range(length)], exact)
    return [{k: round(n) for k, n in enumerate(row) if n} for row in rows]


def everyones_names(group: Group, names: Iterable[str], exact: Channel) -> list[str]:
    """Gather the names of all ranks. All ranks return the same sorted list."""
    text = "\n".join(sorted(names)).encode()
    length = round(max(most for (most,) in gather(group, [float(len(text))], exact)))
    rows = gather(group, [float(byte) for byte in text.ljust(length, b"\n")], exact)
    return sorted({name for row in rows for name in bytes(map(round, row)).decode().split("\n")} - {""})


def digest(tensors: Iterable[Tensor]) -> int:
    """Compute a digest of the tensors' bytes. The digest has 52 bits, so a float64 represents it exactly."""
    hasher = hashlib.sha256()
    for tensor in tensors:
        hasher.update(to_host(tensor).tobytes())
    return int.from_bytes(hasher.digest()[:8], "little") >> 12


def replicas_agree(group: Group, tensors: Iterable[Tensor], exact: Channel) -> bool:
    """Return whether the tensors are bitwise identical on all ranks of the group."""
    digests = gather(group, [float(digest(tensors))], exact)
    return all(row == digests[0] for row in digests)
