"""Small models, and a short run on one rank, which tests modify."""

from typing import Any

from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Data, Model, Train

NEOX = Model(
    name="neox",
    layers=4,
    hidden=32,
    heads=8,
    vocab=256,
    positions="rotary",
    rotary_fraction=0.5,
    parallel_residual=True,
    tied=False,
)
GPT2 = NEOX.changed(name="gpt2", positions="learned", rotary_fraction=0.0, parallel_residual=False, tied=True)
MINI = NEOX.changed(name="mini", layers=1, hidden=16, heads=2)

BASELINE = NamedScheme(name="baseline", algorithm="native", default="none")
SIGNS = NamedScheme(
    name="signs", algorithm="encoded", default="none", rules=[Rule(dimension="DP", codec="sign:1024", feedback=True)]
)
"""1-bit gradients with error feedback."""

TRAIN = Train(
    steps=4,
    warmup_steps=1,
    global_batch=8,
    micro_batch=1,
    seq_len=16,
    precision="fp32",
    zero=1,
    seed=1,
    lr=1e-3,
    min_lr=1e-4,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    weight_decay=0.01,
    clip=1.0,
    bucket_mb=4.0,
    overlap=True,
    eval_every=0,
    eval_samples=4,
)
RUN = Run(
    schema=1,
    study="s",
    site="local",
    run="r1-baseline",
    repeat=1,
    pairing="r1",
    cell={},
    model=MINI,
    data=Data(source="stdlib", valid_fraction=0.1),
    train=TRAIN,
    layout=Layout(),
    scheme=BASELINE,
    ranks=1,
    threads=1,
    oversubscribe=True,
    device="cpu",
    links=None,
)


def place_run(layout: Layout, **fields: Any) -> Run:
    """Return `RUN` in another layout, with changed fields."""
    return RUN.changed(layout=layout, ranks=layout.ranks, **fields)
