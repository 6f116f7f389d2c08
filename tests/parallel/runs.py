"""Short runs for the tests of single mechanisms, based on the case grid."""

from cases import BASE, NAMED

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run

TRAIN = BASE.train
MODELS = NAMED["model"]
SCHEMES = NAMED["scheme"]


def run_of(
    model: str,
    layout: Layout,
    *,
    scheme: str = "baseline",
    precision: str = "fp64",
    zero: int = 1,
    clip: float = TRAIN.clip,
    overlap: bool = True,
    sequence_parallel: bool = False,
) -> Run:
    """Return a run of a few steps. Model gpt2 has tied weights."""
    train = TRAIN.changed(
        precision=precision, zero=zero, clip=clip, overlap=overlap, sequence_parallel=sequence_parallel
    )
    return BASE.changed(model=MODELS[model], scheme=SCHEMES[scheme], layout=layout, ranks=layout.ranks, train=train)


def in_pairs(run: Run) -> Run:
    """Return the run with a few samples in micro-batches of two. Sequence parallelism must not mix the two samples."""
    return run.changed(train=run.train.changed(global_batch=8, micro_batch=2))


def label(layout: Layout) -> str:
    """Format the layout for use in a test name."""
    return f"dp{layout.dp}-tp{layout.tp}-pp{layout.pp}"
