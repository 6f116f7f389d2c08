"""Decisions of a program's ranks about calls, and the reasons for the decisions."""

import hashlib
import os
from typing import Any

import torch
import torch.distributed as dist
from interposing import ASKED, RANKS, interposed, settings
from torch.distributed.device_mesh import init_device_mesh

from hpcbench.contract.interpose import Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs import group_plans


def late_mesh() -> list[list[str]]:
    """Return the groups and dimensions of calls made before and after a mesh is created.

    The mesh describes the group of all ranks.
    """

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
    """Sum with `auto` over ranks on different nodes. Return the link speeds, the decisions, and a digest of the sum."""
    seconds: list[float] = []
    real = group_plans.measure_links

    def record(*args: Any) -> Any:
        links = real(*args)
        seconds.append(links.between.bytes_per_s)
        return links

    group, values = dist.new_group(list(range(RANKS)), group_desc="mesh_dp"), torch.randn(1 << 16)
    scheme = NamedScheme(name="test", algorithm="auto", default="int8:256")
    group_plans.measure_links = record
    os.environ["GROUP_RANK"] = str(dist.get_rank())

    def work() -> str:
        for _ in range(3):
            dist.all_reduce(values, group=group)
        return hashlib.sha256(values.numpy().tobytes()).hexdigest()

    try:
        digest, rows = interposed(Interposition(scheme=scheme, groups=ASKED, out="nowhere"), work)
    finally:
        group_plans.measure_links = real
        del os.environ["GROUP_RANK"]
    return {"speeds": seconds, "digest": digest, "rows": [[row["codec"], row["why"], row["calls"]] for row in rows]}


def tried() -> dict[str, Any]:
    """Run calls with `auto` on a single machine. Return trial results, decisions, and a digest of the results."""
    answers: list[bool] = []
    real = group_plans.is_faster

    def record(*args: Any) -> bool:
        answers.append(real(*args))
        return answers[-1]

    group, ranks = dist.new_group(list(range(RANKS)), group_desc="mesh_dp"), dist.get_world_size()
    generator = torch.Generator().manual_seed(dist.get_rank())
    long, other = (torch.randn(n, generator=generator) for n in (1 << 16, (1 << 16) - 64))
    part, joined = torch.empty((1 << 16) // ranks), torch.empty(1 << 16)
    exact = long.clone()
    dist.all_reduce(exact, group=group)
    scheme = NamedScheme(name="test", algorithm="auto", default="int8:256")
    asked = Interposition(scheme=scheme, groups=ASKED, out="nowhere")
    group_plans.is_faster = record

    def work() -> str:
        dist.reduce_scatter_tensor(part, long, group=group)
        dist.all_gather_into_tensor(joined, part, group=group)
        for values in (long, long, other):
            dist.all_reduce(values, group=group)
        return hashlib.sha256(torch.cat([joined, long, other]).numpy().tobytes()).hexdigest()

    try:
        digest, rows = interposed(asked, work)
    finally:
        group_plans.is_faster = real
    error = float((joined - exact).abs().max())
    summary = sorted([row["call"], row["codec"], row["why"], row["calls"]] for row in rows)
    return {"tried": answers, "digest": digest, "rows": summary, "error": error}
