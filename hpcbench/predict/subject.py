"""What is predicted: a run, as far as time, memory and traffic depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hpcbench.parallel.layout import Layout
from hpcbench.predict.fabric import Place
from hpcbench.predict.program import ENGINE, Program
from hpcbench.train.config import CommPrecision, Model, Scheme, SchemeRule, Train

BASELINE = Scheme("baseline", "native", "none", [])


@dataclass(frozen=True, eq=False)
class Subject:
    """A run on nodes of so many ranks each."""

    model: Model
    train: Train
    layout: Layout
    ranks_per_node: int
    scheme: Scheme = BASELINE
    program: Program = ENGINE
    links: str | None = None
    """File that the engine would choose its plans by."""

    @property
    def micro_batches(self) -> int:
        """Of one replica in a step."""
        return self.train.global_batch // self.layout.dp // self.train.micro_batch

    def place(self, group: str) -> Place:
        """Where the group of rank 0 lies."""
        layout, usual = self.layout, min(self.ranks_per_node, self.layout.ranks)
        stage = layout.dp * layout.tp
        size, stride = {
            "tp": (layout.tp, 1),
            "dp": (layout.dp, layout.tp),
            "node": (max(1, min(layout.dp, usual // layout.tp)), layout.tp),
            "pp": (layout.pp, stage),
            "ends": (min(2, layout.pp), stage * max(layout.pp - 1, 1)),
            "world": (layout.ranks, 1),
        }[group]
        per_node = max(1, min(size, -(-usual // stride)))
        return Place(-(-size // per_node), per_node, max(1, min(stride, usual // per_node)))

    @property
    def stage_crosses(self) -> bool:
        """Whether neighbouring stages lie on different nodes."""
        return self.layout.dp * self.layout.tp >= self.ranks_per_node


def train_of(**given: Any) -> Train:
    """Settings with what does not matter here filled in.

    Parameters
    ----------
    given
        Fields of `Train`; at least `global_batch`, `micro_batch` and `seq_len`.
    """
    usual: dict[str, Any] = {
        "steps": 10,
        "warmup_steps": 1,
        "precision": "bf16",
        "zero": 0,
        "seed": 1,
        "lr": 1e-4,
        "min_lr": 1e-5,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.0,
        "clip": 1.0,
        "bucket_mb": 25.0,
        "overlap": True,
        "eval_every": 0,
        "eval_samples": 0,
    }
    return Train(**{**usual, **given})


def of_run_file(raw: Mapping[str, Any], *, ranks_per_node: int) -> Subject:
    """The subject that a run file's content describes.

    Raises
    ------
    ValueError
        It says something that the model does not know: it is refused by name, since it may change everything.
    """
    known = {field.name for field in fields(Train)}
    for section, kind in (("model", Model), ("train", Train), ("layout", Layout)):
        for name in raw[section]:
            if name not in {field.name for field in fields(kind)}:
                raise ValueError(f"{section}.{name}: is not in the model of `hpcbench predict` yet")
    train = {name: value for name, value in raw["train"].items() if name in known}
    if isinstance(train.get("comm_precision"), Mapping):
        train["comm_precision"] = CommPrecision(**train["comm_precision"])
    scheme = raw["scheme"]
    rules = [SchemeRule(**rule) for rule in scheme["rules"]]
    return Subject(
        Model(**raw["model"]),
        Train(**train),
        Layout(**raw["layout"]),
        ranks_per_node,
        Scheme(scheme["name"], scheme["algorithm"], scheme["default"], rules, scheme.get("environment") or {}),
        ENGINE,
        raw.get("links"),
    )
