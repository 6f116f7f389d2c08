"""Workload of a prediction: the run settings that determine time, memory and traffic."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpcbench.contract.grid import Axes
from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model, Train
from hpcbench.errors import UserError
from hpcbench.predict.fabric import GroupPlacement
from hpcbench.predict.program import ENGINE, TrainingProgram

BASELINE = NamedScheme(name="baseline", algorithm="native")
UNPREDICTED = ("sparse_gradients", "prune")
"""Fields of `Train` that change the time, memory or traffic of a step, but that the model does not cover. A run that
sets one of these fields to a non-default value is refused. Every new field of any section belongs here until the
model covers the field."""


@dataclass(frozen=True, eq=False)
class Workload:
    """A run on nodes with `ranks_per_node` ranks each."""

    model: Model
    train: Train
    layout: Layout
    ranks_per_node: int
    scheme: NamedScheme = BASELINE
    program: TrainingProgram = ENGINE
    links: str | None = None
    """File of measured links that the engine uses to choose plans."""

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches per replica and step."""
        return self.train.global_batch // self.layout.dp // self.train.micro_batch

    @property
    def shard(self) -> int:
        """Number of replicas over which the ZeRO states are sharded."""
        return min(self.program.shard or self.layout.replicas, self.layout.replicas)

    @property
    def crosses_nodes(self) -> bool:
        """Whether the run sends messages between nodes."""
        return self.layout.ranks > self.ranks_per_node

    @cached_property
    def _places(self) -> dict[str, GroupPlacement]:
        return {}

    def place_group(self, group: str) -> GroupPlacement:
        """Return the placement of rank 0's group, where `group` is a value of `PredictedCall.group`."""
        if group not in self._places:
            self._places[group] = self._place(group)
        return self._places[group]

    def _place(self, group: str) -> GroupPlacement:
        layout, usual = self.layout, min(self.ranks_per_node, self.layout.ranks)
        stage, shard = layout.replicas * layout.tp, self.shard
        groups = {
            "tp": (layout.tp, 1),
            "cp": (layout.cp, layout.tp),
            "dp": (layout.replicas, layout.tp),
            "shard": (shard, layout.tp),
            "copies": (layout.replicas // shard, layout.tp * shard),
            "node": (max(1, min(layout.replicas, usual // layout.tp)), layout.tp),
            "ep": (layout.ep, layout.tp * layout.cp),
            "pp": (layout.pp, stage),
            "ends": (min(2, layout.pp), stage * max(layout.pp - 1, 1)),
            "world": (layout.ranks, 1),
        }
        if group == "edp":
            return self._place_expert_replicas(usual)
        if group not in groups:
            return self._place_axes(tuple(group), usual)
        size, stride = groups[group]
        per_node = max(1, min(size, -(-usual // stride)))
        return GroupPlacement(-(-size // per_node), per_node, max(1, min(stride, usual // per_node)))

    def _place_expert_replicas(self, usual: int) -> GroupPlacement:
        """Return the placement of the first-stage ranks that hold the same experts as rank 0."""
        layout = self.layout
        replicas = [replica for replica in range(layout.replicas) if layout.expert_coordinates(replica)[1] == 0]
        per_node = sum(replica * layout.tp < usual for replica in replicas)
        concurrent = max(1, min(layout.tp * layout.ep, usual // per_node))
        return GroupPlacement(-(-len(replicas) // per_node), per_node, concurrent)

    def _place_axes(self, axes: Axes, usual: int) -> GroupPlacement:
        """Return the placement of rank 0's group along axes of the tensor grid."""
        grid = self.layout.grid
        others = grid.others(axes)
        inside = [rank for rank in range(grid.ranks) if grid.index(rank, others) == 0]
        per_node = sum(rank < usual for rank in inside)
        return GroupPlacement(-(-len(inside) // per_node), per_node, max(1, usual // per_node))

    @property
    def stage_crosses(self) -> bool:
        """Whether consecutive stages are on different nodes."""
        return self.layout.replicas * self.layout.tp >= self.ranks_per_node


def make_train(**given: Any) -> Train:
    """Create training settings, with defaults for fields that do not affect a prediction.

    Parameters
    ----------
    given
        Fields of `Train`, at least `global_batch`, `micro_batch` and `seq_len`.
    """
    usual: dict[str, Any] = {"steps": 10, "warmup_steps": 1, "precision": "bf16", "zero": 0, "bucket_mb": 25.0}
    return Train(**{**usual, **given})


def make_workload(run: Run, *, ranks_per_node: int, program: TrainingProgram = ENGINE) -> Workload:
    """Return the workload of a run with a training program.

    Raises
    ------
    ValueError
        The run has a setting that the model does not cover. The message names the setting.
    """
    for name in UNPREDICTED:
        if getattr(run.train, name) != Train.model_fields[name].get_default(call_default_factory=True):
            raise ValueError(f"train.{name}: `hpcbench predict` does not cover this setting yet")
    if program is ENGINE and run.train.transport == "nccl":
        raise ValueError("train.transport nccl: `hpcbench predict` covers hpcbench's engine only over MPI")
    if changes := run.scheme.process_changes:
        raise ValueError(
            f"scheme {run.scheme.name}: `hpcbench predict` does not cover other systems (set with {changes})"
        )
    if program.shard and run.layout.replicas % min(program.shard, run.layout.replicas):
        raise UserError(
            f"--program {program.name}: {run.layout.replicas} replicas are not a multiple of shard={program.shard}: "
            "give another shard=N"
        )
    elements = run.model.layer_weights / run.layout.tp
    train = program.adapt(run.train, layer_elements=elements)
    return Workload(run.model, train, run.layout, ranks_per_node, run.scheme, program, run.links)
