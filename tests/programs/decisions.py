"""What the ranks of a program decide on calls, and on what that rests."""

import hashlib
import os
from typing import Any

import torch
import torch.distributed as dist
from interposing import RANKS, SMALL, interposed, settings
from torch.distributed.device_mesh import init_device_mesh

from hpcbench.contract.interpose import Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.torch import encoded


def late_mesh() -> list[list[str]]:
    """The group and its dimension, for calls before and after a mesh has told what the group of all ranks is."""

    def work() -> None:
        values = torch.ones(4096)
        for _ in range(2):
            dist.all_reduce(values)
        init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
        for _ in range(3):
            dist.all_reduce(values)

    _, rows = interposed(settings(), work)
    return sorted([row["group"], row["dimension"], row["calls"]] for row in rows)


def automatic() -> dict[str, Any]:
    """Sums with `auto` over ranks that say that they are on nodes of their own: links, decisions, digest of the sum."""
    found: list[float] = []
    real = encoded.measured

    def kept(*args: Any) -> Any:
        links = real(*args)
        found.append(links.between.bytes_per_s)
        return links

    group, values = dist.new_group(list(range(RANKS)), group_desc="mesh_dp"), torch.randn(1 << 16)
    scheme = NamedScheme(name="test", algorithm="auto", default="int8:256")
    encoded.measured = kept
    os.environ["GROUP_RANK"] = str(dist.get_rank())

    def work() -> str:
        for _ in range(3):
            dist.all_reduce(values, group=group)
        return hashlib.sha256(values.numpy().tobytes()).hexdigest()

    try:
        digest, rows = interposed(Interposition(scheme=scheme, groups=SMALL, out="nowhere"), work)
    finally:
        encoded.measured = real
        del os.environ["GROUP_RANK"]
    return {"speeds": found, "digest": digest, "rows": [[row["codec"], row["why"], row["calls"]] for row in rows]}
