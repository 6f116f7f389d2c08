"""Runs with pipelines and recomputation, and reference runs without them."""

from dataclasses import dataclass

from runs import run_of

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run

STEPS = 2
LAYERS, BATCH = 8, 8

TWO, FOUR = Layout(pp=2, chunks=2), Layout(pp=4, chunks=2)


@dataclass(frozen=True)
class Case:
    """A run with a pipeline or recomputation. The reference has the same `dp` and `tp`, but no pipeline and no
    recomputation."""

    layout: Layout
    schedule: str = "1f1b"
    recompute: str | int = "none"
    model: str = "neox"
    zero: int = 1

    @property
    def name(self) -> str:
        stages = "-".join(map(str, self.layout.stages))
        sizes = f"dp{self.layout.dp}-tp{self.layout.tp}-pp{self.layout.pp}"
        return f"{self.model}:{sizes}:{self.schedule}:{stages or 'even'}:{self.recompute}:zero{self.zero}"

    @property
    def run(self) -> Run:
        run = run_of(self.model, self.layout, zero=self.zero, clip=0.0)
        train = run.train.changed(global_batch=BATCH, schedule=self.schedule, recompute=self.recompute)
        return run.changed(model=run.model.changed(layers=LAYERS), train=train)


GRID = [
    *(Case(Layout(pp=pp), schedule) for pp in (2, 4) for schedule in ("gpipe", "1f1b")),
    *(Case(layout, "interleaved") for layout in (TWO, FOUR)),
    Case(Layout(pp=3, stages=[1, 4, 3])),
    Case(Layout(pp=2, stages=[5, 3]), "gpipe", model="gpt2"),
    Case(TWO.changed(stages=[1, 3, 2, 2]), "interleaved", model="gpt2"),
    Case(FOUR, "interleaved", "full", model="gpt2"),
    *(Case(Layout(), recompute=what, model="gpt2") for what in ("selective", "full")),
    *(Case(Layout(), recompute=what) for what in ("selective", "full", 3)),
    Case(TWO, "interleaved", "selective"),
    Case(TWO.changed(tp=2), "interleaved", "full"),
    Case(TWO.changed(tp=2), "interleaved", 2),
    Case(TWO.changed(dp=2), "interleaved", zero=0),
    Case(TWO.changed(dp=2), "interleaved", "full"),
]


FAULTY = {
    "chunks_swapped": Case(TWO, "interleaved"),
    "chunk_gradient_dropped": Case(TWO, "interleaved"),
    "weights_of_a_chunk_left_out": Case(TWO, "interleaved"),
    "other_micro_batch": Case(Layout(pp=2), "gpipe"),
    "stale_input": Case(Layout(), "1f1b", "full"),
}
"""A case for each planted fault. `GRID` contains the same case without the fault."""


def without_pipeline(case: Case) -> Case:
    return Case(Layout(dp=case.layout.dp, tp=case.layout.tp), model=case.model, zero=case.zero)
