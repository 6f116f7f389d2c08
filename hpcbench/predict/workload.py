"""What is predicted: a run, as far as time, memory and traffic depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from hpcbench.contract.grid import Axes
from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model, Train
from hpcbench.predict.fabric import GroupPlacement
from hpcbench.predict.program import ENGINE, TrainingProgram

BASELINE = NamedScheme(name="baseline", algorithm="native")
KNOWN: Mapping[type[BaseModel], frozenset[str]] = {
    Model: frozenset(
        (
            "name",
            "layers",
            "hidden",
            "heads",
            "vocab",
            "positions",
            "rotary_fraction",
            "parallel_residual",
            "tied",
            "experts",
        )
    ),
    Train: frozenset(
        (
            *("steps", "warmup_steps", "global_batch", "micro_batch", "seq_len", "precision", "comm_precision", "zero"),
            *("seed", "lr", "min_lr", "beta1", "beta2", "eps", "weight_decay", "clip", "bucket_mb", "overlap"),
            *("eval_every", "eval_samples", "checkpoint_every", "schedule", "vertical_sync", "recompute"),
            *("sync", "staleness", "slow_factor", "slow_rank"),
            "sequence_parallel",
            *("offload", "node_copy", "optimizer", "freeze_step"),
            *("loss_scale", "loss_scale_window", "loss_scale_hysteresis", "trace", "keep_messages"),
        )
    ),
    Layout: frozenset(("dp", "tp", "tensor", "depth", "cp", "context", "pp", "ep", "chunks", "stages")),
}
"""Settings that the model takes into account, or that change neither time nor memory nor traffic of a step. A run that
sets another one to anything but its default is refused by name."""


@dataclass(frozen=True, eq=False)
class Workload:
    """A run on nodes of so many ranks each."""

    model: Model
    train: Train
    layout: Layout
    ranks_per_node: int
    scheme: NamedScheme = BASELINE
    program: TrainingProgram = ENGINE
    links: str | None = None
    """File that the engine would choose its plans by."""

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica in a step."""
        return self.train.global_batch // self.layout.dp // self.train.micro_batch

    @property
    def crosses_nodes(self) -> bool:
        """Whether messages of the run leave a node."""
        return self.layout.ranks > self.ranks_per_node

    @cached_property
    def _places(self) -> dict[str, GroupPlacement]:
        return {}

    def place_group(self, group: str) -> GroupPlacement:
        """Where the group of rank 0 lies: a group of `Call`."""
        if group not in self._places:
            self._places[group] = self._place(group)
        return self._places[group]

    def _place(self, group: str) -> GroupPlacement:
        layout, usual = self.layout, min(self.ranks_per_node, self.layout.ranks)
        stage = layout.replicas * layout.tp
        groups = {
            "tp": (layout.tp, 1),
            "cp": (layout.cp, layout.tp),
            "dp": (layout.replicas, layout.tp),
            "node": (max(1, min(layout.replicas, usual // layout.tp)), layout.tp),
            "ep": (layout.ep, layout.tp * layout.cp),
            "pp": (layout.pp, stage),
            "ends": (min(2, layout.pp), stage * max(layout.pp - 1, 1)),
            "world": (layout.ranks, 1),
        }
        if group == "edp":
            return self._holders(usual)
        if group not in groups:
            return self._line(tuple(group), usual)
        size, stride = groups[group]
        per_node = max(1, min(size, -(-usual // stride)))
        return GroupPlacement(-(-size // per_node), per_node, max(1, min(stride, usual // per_node)))

    def _holders(self, usual: int) -> GroupPlacement:
        """The ranks of the first stage that hold the experts of rank 0."""
        layout = self.layout
        replicas = [replica for replica in range(layout.replicas) if layout.expert_coordinates(replica)[1] == 0]
        per_node = sum(replica * layout.tp < usual for replica in replicas)
        alike = max(1, min(layout.tp * layout.ep, usual // per_node))
        return GroupPlacement(-(-len(replicas) // per_node), per_node, alike)

    def _line(self, axes: Axes, usual: int) -> GroupPlacement:
        """Along axes of the tensor grid: neighbours of rank 0 whose other coordinates are its own."""
        grid = self.layout.grid
        others = grid.others(axes)
        inside = [rank for rank in range(grid.ranks) if grid.index(rank, others) == 0]
        per_node = sum(rank < usual for rank in inside)
        return GroupPlacement(-(-len(inside) // per_node), per_node, max(1, usual // per_node))

    @property
    def stage_crosses(self) -> bool:
        """Whether neighbouring stages lie on different nodes."""
        return self.layout.replicas * self.layout.tp >= self.ranks_per_node


def make_train(**given: Any) -> Train:
    """Settings with what does not matter here filled in.

    Parameters
    ----------
    given
        Fields of `Train`; at least `global_batch`, `micro_batch` and `seq_len`.
    """
    usual: dict[str, Any] = {"steps": 10, "warmup_steps": 1, "precision": "bf16", "zero": 0, "bucket_mb": 25.0}
    return Train(**{**usual, **given})


def make_workload(run: Run, *, ranks_per_node: int) -> Workload:
    """The workload that a run is.

    Raises
    ------
    ValueError
        It says something that the model does not know: it is refused by name, since it may change everything.
    """
    for name, section in (("model", run.model), ("train", run.train), ("layout", run.layout)):
        if unknown := find_unknown_setting(section):
            raise ValueError(f"{name}.{unknown}: is not in the model of `hpcbench predict` yet")
    if run.scheme.environment:
        raise ValueError(
            f"scheme {run.scheme.name}: environment: what the MPI library does by these variables is not in the model "
            "of `hpcbench predict`"
        )
    return Workload(run.model, run.train, run.layout, ranks_per_node, run.scheme, ENGINE, run.links)


def find_unknown_setting(section: BaseModel) -> str | None:
    """The first field that the model does not know and that is not its default; None where there is none."""
    fields = type(section).model_fields
    for name, field in fields.items():
        if name not in KNOWN[type(section)] and getattr(section, name) != field.get_default(call_default_factory=True):
            return name
    return None
