"""Pipelines without a flush, each compared with a single-process simulator of delayed updates."""

from dataclasses import dataclass, field
from typing import Any

from runs import run_of

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme

STEPS, LAYERS = 6, 4
ROUNDED = NamedScheme(name="rounded", algorithm="two-shot", default="int8:256:stochastic")


@dataclass(frozen=True)
class Case:
    """A pipeline run: schedule, layout, micro-batches per step, and other changes to the base run."""

    schedule: str
    layout: Layout
    micro_batches: int = 1
    vertical: bool = False
    zero: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    scheme: str = "baseline"

    @property
    def name(self) -> str:
        sizes = f"dp{self.layout.dp}-tp{self.layout.tp}-pp{self.layout.pp}-m{self.micro_batches}"
        more = "-".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.schedule}{'-vertical' if self.vertical else ''}:{sizes}:zero{self.zero}:{self.scheme}:{more}"

    def of(self, layout: Layout, **settings: Any) -> Run:
        run = run_of("neox", layout, zero=self.zero, clip=0.0)
        run = run.changed(scheme=ROUNDED) if self.scheme == "rounded" else run
        train = run.train.changed(
            **{
                "steps": STEPS,
                "global_batch": self.micro_batches * layout.dp,
                "lr": 1e-2,
                **self.settings,
                **settings,
            }
        )
        return run.changed(model=run.model.changed(layers=LAYERS), train=train)

    @property
    def run(self) -> Run:
        return self.of(self.layout, schedule=self.schedule, vertical_sync=self.vertical)

    @property
    def alone(self) -> Run:
        """Run of the same case without a pipeline, for the simulator."""
        return self.of(Layout(dp=self.layout.dp, tp=self.layout.tp))


TWO, THREE, FOUR = (Layout(pp=pp) for pp in (2, 3, 4))
GRID = [
    Case("pipedream", TWO),
    Case("pipedream", FOUR),
    Case("pipedream", THREE, 2),
    Case("pipedream", FOUR, 3),
    Case("pipedream", THREE, vertical=True),
    Case("pipedream", FOUR, 2, vertical=True),
    Case("pipedream-2bw", TWO, 2),
    Case("pipedream-2bw", THREE, 3),
    Case("pipedream-2bw", FOUR, 5),
    Case("pipedream", Layout(dp=2, pp=2), 1, zero=1),
    Case("pipedream", Layout(dp=2, pp=2), 2, vertical=True, zero=2),
    Case("pipedream-2bw", Layout(tp=2, pp=2), 2, settings={"sequence_parallel": True}),
    Case("pipedream", TWO, 1, settings={"recompute": "full"}),
]
FAULTY = {
    "newest_in_the_backward_pass": Case("pipedream", FOUR),
    "never_stashed": Case("pipedream", THREE, 2),
    "newest_everywhere": Case("pipedream", THREE, vertical=True),
    "newest_with_two_buffers": Case("pipedream-2bw", THREE, 3),
}
"""For each planted fault, the case that must detect it."""

RESUMED = [
    Case("pipedream", FOUR, settings={"eval_every": 3}),
    Case("pipedream", THREE, 2, vertical=True, settings={"precision": "bf16"}, zero=1),
    Case("pipedream-2bw", TWO, 3, zero=1),
    Case("pipedream", Layout(dp=2, pp=2), scheme="rounded", zero=1, settings={"precision": "fp32"}),
]
AFTER_RESUME = {
    "version_off_by_one": RESUMED[0],
    "versions_lost": RESUMED[1],
    "flights_with_other_seeds": RESUMED[3],
}

DIVERGED = [
    (case, stage, field, step)
    for case in (Case("pipedream", FOUR), Case("pipedream-2bw", TWO, 2), Case("pipedream", Layout(dp=2, pp=2), 2))
    for stage, field in ((-1, "loss"), (0, "norm"))
    for step in (1, 3, STEPS)
]
"""Case, stage, field of the step result that becomes NaN, and step number."""
