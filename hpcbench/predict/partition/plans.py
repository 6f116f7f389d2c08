"""Plans of the partitioner for a run: PipeDream's unrestricted cut, layouts for the engine, and a plan for 2BW.

The planner of PipeDream-2BW (arXiv 2006.09503, section 4) tries every width, depth, micro-batch size and kind of
recomputation that fits into the memory, and returns the plan with the most samples per second.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpcbench.errors import UserError
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.partition.chain import Setting
from hpcbench.predict.partition.profile import make_setting, profile_layers
from hpcbench.predict.partition.solve import find_best_cut, find_even_cut
from hpcbench.predict.workload import Workload


@dataclass(frozen=True)
class EvenPlan:
    """A layout of the engine with `pp` stages of `dp` replicas."""

    pp: int
    dp: int
    stages: tuple[int, ...]
    micro_batch: int
    recompute: str
    samples_per_s: float


@dataclass(frozen=True)
class Plans:
    """The plans for one cell and scheme. Each rank stands for a tensor-parallel group."""

    cell: str
    scheme: str
    ranks: int
    free: tuple[tuple[int, int], ...] | None
    """Numbers of layers and replicas of each stage, from first to last, or None if no cut fits."""
    free_samples_per_s: float
    even: tuple[EvenPlan, ...]
    """Best layout for each number of stages, fastest first."""
    two_buffers: EvenPlan | None
    """The best plan with two versions, or None if no plan fits."""


def plan_stages(
    cell: str, scheme: str, workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None
) -> Plans:
    """Partition the run's model over the ranks of its layout.

    Raises
    ------
    UserError
        The layout has a tensor grid or chunks.
    """
    layout, train = workload.layout, workload.train
    if layout.tensor != "1d" or layout.chunks > 1:
        raise UserError(
            "--partition: tensor grids and chunks are not supported: set `layout.tensor: 1d` and `chunks: 1`"
        )
    chain = profile_layers(workload, machine)
    setting = make_setting(workload, machine, speeds, micro_batches=max(workload.micro_batches, 1))
    free = find_best_cut(chain, setting)
    even = sorted(
        (plan for pp, dp in _list_shapes(workload, setting) if (plan := _plan_even(workload, machine, speeds, pp, dp))),
        key=lambda plan: -plan.samples_per_s,
    )
    candidates = _plan_two_buffers(workload, machine, speeds, setting)
    doubled = max(candidates, key=lambda plan: plan.samples_per_s, default=None)
    stages = tuple((stage.stop - stage.first, stage.replicas) for stage in free.stages) or None
    speed = train.micro_batch / free.seconds if stages else 0.0
    return Plans(cell, scheme, setting.ranks, stages, speed, tuple(even), doubled)


def _list_shapes(workload: Workload, setting: Setting) -> Iterator[tuple[int, int]]:
    """List depth and width of all layouts with the setting's number of ranks."""
    for pp in range(1, min(setting.ranks, workload.model.layers) + 1):
        if setting.ranks % pp == 0:
            yield pp, setting.ranks // pp


def _count_micro_batches(workload: Workload, dp: int) -> int:
    """Return the number of micro-batches of a replica in a step, or 0 if `dp` does not divide the batch."""
    part = workload.train.micro_batch * dp
    return 0 if workload.train.global_batch % part else workload.train.global_batch // part


def _plan_even(
    workload: Workload,
    machine: Machine,
    speeds: dict[str, CodecSpeed] | None,
    pp: int,
    dp: int,
    *,
    versions: int | None = None,
) -> EvenPlan | None:
    m = _count_micro_batches(workload, dp)
    if not m:
        return None
    setting = make_setting(workload, machine, speeds, micro_batches=m)
    cut = find_even_cut(profile_layers(workload, machine), setting, stages=pp, replicas=dp, versions=versions)
    if not math.isfinite(cut.seconds):
        return None
    train, lengths = workload.train, tuple(stage.stop - stage.first for stage in cut.stages)
    return EvenPlan(pp, dp, lengths, train.micro_batch, str(train.recompute), train.micro_batch / cut.seconds)


def _plan_two_buffers(
    workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None, setting: Setting
) -> Iterator[EvenPlan]:
    train = workload.train
    for recompute in ("none", "full"):
        micro_batch = 1
        while micro_batch <= train.global_batch:
            sized = replace(
                workload, train=train.model_copy(update={"micro_batch": micro_batch, "recompute": recompute})
            )
            for pp, dp in _list_shapes(workload, setting):
                if pp == 1 or _count_micro_batches(sized, dp) < pp:
                    continue
                if plan := _plan_even(sized, machine, speeds, pp, dp, versions=2):
                    yield plan
            micro_batch *= 2


def describe_plans(plans_of_cells: Sequence[Plans]) -> list[str]:
    """Describe the plans in sentences, with the corresponding lines of a study file."""
    lines: list[str] = []
    for plans in plans_of_cells:
        name = " ".join(part for part in (plans.scheme, f"({plans.cell})" if plans.cell else "") if part)
        if plans.free is None:
            lines.append(f"{name}: no division into stages fits the memory of {plans.ranks} ranks.")
        else:
            cut = ", ".join(f"{layers} x {replicas}" for layers, replicas in plans.free)
            lines.append(
                f"{name}: PipeDream's division of {plans.ranks} ranks (layers x replicas, from first to last "
                f"stage): {cut}: {plans.free_samples_per_s:.4g} samples/s in a full pipeline."
            )
        for plan in plans.even[:3]:
            lines.append(f"{name}: {_format_layout(plan)}: {plan.samples_per_s:.4g} samples/s in a full pipeline.")
        if plans.two_buffers is None:
            lines.append(f"{name}: no plan for pipedream-2bw fits.")
        else:
            best = plans.two_buffers
            lines.append(
                f"{name}: pipedream-2bw: width {best.dp}, depth {best.pp}, micro_batch {best.micro_batch}, recompute "
                f"{best.recompute}: {_format_layout(best)}: {best.samples_per_s:.4g} samples/s in a full pipeline."
            )
    return lines


def _format_layout(plan: EvenPlan) -> str:
    return f"layout: {{pp: {plan.pp}, dp: {plan.dp}, stages: [{', '.join(map(str, plan.stages))}]}}"
