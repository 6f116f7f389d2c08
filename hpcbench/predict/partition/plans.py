"""What the partitioner says of a run: PipeDream's free cut, the layouts that the engine can run, and a 2BW plan.

The planner of PipeDream-2BW (arXiv 2006.09503, section 4) looks at every width and depth, micro-batch and way to keep
activations that fit the memory, and takes the one with the most samples a second.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.partition.chain import Setting
from hpcbench.predict.partition.profile import make_setting, profile_layers
from hpcbench.predict.partition.solve import PipelineCut, find_best_cut, find_even_cut
from hpcbench.predict.workload import Workload


@dataclass(frozen=True)
class EvenPlan:
    """A layout of the engine: `pp` stages of `dp` replicas."""

    pp: int
    dp: int
    stages: tuple[int, ...]
    micro_batch: int
    recompute: str
    samples_per_s: float


@dataclass(frozen=True)
class Plans:
    """The plans for one cell and scheme. Ranks are tensor groups; `free` is None if no cut fits."""

    cell: str
    scheme: str
    ranks: int
    free: tuple[tuple[int, int], ...] | None
    """Layers and replicas of each stage, first to last."""
    free_samples_per_s: float
    even: tuple[EvenPlan, ...]
    """The best layouts of every number of stages, the fastest first."""
    two_buffers: EvenPlan | None
    """The best plan with two versions; None if none fits."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def plan_stages(
    cell: str, scheme: str, workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None
) -> Plans:
    """PipelineCut the run's model over as many ranks as its layout has.

    Raises
    ------
    UserError
        The layout has a tensor grid, or chunks.
    """
    layout, train = workload.layout, workload.train
    if layout.tensor != "1d" or layout.chunks > 1:
        raise UserError("--partition: cuts models without tensor grids and chunks: use layout.tensor 1d and chunks 1")
    chain = profile_layers(workload, machine)
    setting = make_setting(workload, machine, speeds, micro_batches=max(workload.micro_batches, 1))
    free = find_best_cut(chain, setting)
    even = sorted(
        (one for pp, dp in _shapes(workload, setting) if (one := _even(workload, machine, speeds, pp, dp))),
        key=lambda one: -one.samples_per_s,
    )
    doubled = max(_two_buffers(workload, machine, speeds, setting), key=lambda one: one.samples_per_s, default=None)
    stages = tuple((stage.stop - stage.first, stage.replicas) for stage in free.stages) or None
    speed = train.micro_batch / free.seconds if stages else 0.0
    return Plans(cell, scheme, setting.ranks, stages, speed, tuple(even), doubled)


def _shapes(workload: Workload, setting: Setting) -> Iterator[tuple[int, int]]:
    """Depth and width of all layouts of so many ranks."""
    for pp in range(1, min(setting.ranks, workload.model.layers) + 1):
        if setting.ranks % pp == 0:
            yield pp, setting.ranks // pp


def _micro_batches(workload: Workload, dp: int) -> int:
    """Micro-batches of a replica in a step, 0 if the batch cannot be shared out."""
    part = workload.train.micro_batch * dp
    return 0 if workload.train.global_batch % part else workload.train.global_batch // part


def _even(
    workload: Workload,
    machine: Machine,
    speeds: dict[str, CodecSpeed] | None,
    pp: int,
    dp: int,
    *,
    versions: int | None = None,
) -> EvenPlan | None:
    m = _micro_batches(workload, dp)
    if not m:
        return None
    setting = make_setting(workload, machine, speeds, micro_batches=m)
    cut = find_even_cut(profile_layers(workload, machine), setting, stages=pp, replicas=dp, versions=versions)
    if not math.isfinite(cut.seconds):
        return None
    train = workload.train
    return EvenPlan(pp, dp, _lengths(cut), train.micro_batch, str(train.recompute), train.micro_batch / cut.seconds)


def _two_buffers(
    workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None, setting: Setting
) -> Iterator[EvenPlan]:
    train = workload.train
    for recompute in ("none", "full"):
        micro_batch = 1
        while micro_batch <= train.global_batch:
            sized = replace(
                workload, train=train.model_copy(update={"micro_batch": micro_batch, "recompute": recompute})
            )
            for pp, dp in _shapes(workload, setting):
                if (
                    pp > 1
                    and _micro_batches(sized, dp) >= pp
                    and (one := _even(sized, machine, speeds, pp, dp, versions=2))
                ):
                    yield one
            micro_batch *= 2


def _lengths(cut: PipelineCut) -> tuple[int, ...]:
    return tuple(stage.stop - stage.first for stage in cut.stages)


def describe_plans(found: Sequence[Plans]) -> list[str]:
    """The plans in sentences and lines for a study."""
    lines: list[str] = []
    for plans in found:
        name = " ".join(part for part in (plans.scheme, f"({plans.cell})" if plans.cell else "") if part)
        if plans.free is None:
            lines.append(f"{name}: no cut into stages fits the memory of {plans.ranks} ranks.")
        else:
            cut = ", ".join(f"{layers} x {replicas}" for layers, replicas in plans.free)
            lines.append(
                f"{name}: PipeDream's cut of {plans.ranks} ranks (layers x replicas, first stage to last): {cut}: "
                f"{plans.free_samples_per_s:.4g} samples/s in a full pipeline."
            )
        for one in plans.even[:3]:
            lines.append(f"{name}: {_layout(one)}: {one.samples_per_s:.4g} samples/s in a full pipeline.")
        if plans.two_buffers is None:
            lines.append(f"{name}: no plan for pipedream-2bw fits.")
        else:
            best = plans.two_buffers
            lines.append(
                f"{name}: pipedream-2bw: width {best.dp}, depth {best.pp}, micro_batch {best.micro_batch}, recompute "
                f"{best.recompute}: {_layout(best)}: {best.samples_per_s:.4g} samples/s in a full pipeline."
            )
    return lines


def _layout(one: EvenPlan) -> str:
    return f"layout: {{pp: {one.pp}, dp: {one.dp}, stages: [{', '.join(map(str, one.stages))}]}}"
