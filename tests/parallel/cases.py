"""The runs that the parity tests compare, and the layouts they are spread over."""

from dataclasses import replace
from itertools import product

from hpcbench.parallel.layout import Layout
from hpcbench.train.config import Data, Model, Run, Scheme, SchemeRule, Train

MOST_RANKS = 8
STEPS = 3

NEOX = Model("neox", 4, 32, 8, 256, "rotary", 0.5, parallel_residual=True, tied=False)
GPT2 = Model("gpt2", 4, 32, 8, 259, "learned", 0.0, parallel_residual=False, tied=True)
MODELS = {model.name: model for model in (NEOX, GPT2)}

BASELINE = Scheme("baseline", "native", "none", [])
IDENTITY = Scheme("identity", "two-shot", "none", [])
NAIVE_MPC = Scheme("naive-mpc", "two-shot", "mpc", [])
HYBRID = Scheme("zhybrid-16-8", "two-shot", "zfp:16", [SchemeRule("DP", None, None, "zfp:8")])
INT8 = Scheme("naive-int8", "encoded", "int8:256", [])
SIGNS = Scheme("sign-feedback", "encoded", "none", [SchemeRule("DP", None, None, "sign:1024", feedback=True)])
SCHEMES = {scheme.name: scheme for scheme in (BASELINE, IDENTITY, NAIVE_MPC, HYBRID, INT8, SIGNS)}

LOSSY = ("zhybrid-16-8", "naive-int8", "sign-feedback")

LAYOUTS = [
    Layout(dp=dp, tp=tp, pp=pp)
    for dp, tp, pp in product((1, 2, 3, 4, 6, 8), (1, 2, 4, 8), (1, 2, 3, 4))
    if 1 < dp * tp * pp <= MOST_RANKS
]
"""Every layout of at most eight ranks that divides the batch, the heads and the layers."""

SPREAD = [
    Layout(dp=dp, tp=tp, pp=pp) for dp, tp, pp in ((1, 2, 1), (1, 4, 1), (2, 2, 1), (2, 4, 1), (1, 4, 2), (2, 2, 2))
]
"""Layouts for sequence parallelism."""

TRAIN = Train(
    steps=STEPS,
    warmup_steps=1,
    global_batch=24,
    micro_batch=1,
    seq_len=12,
    precision="fp64",
    zero=1,
    seed=7,
    lr=1e-3,
    min_lr=1e-4,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    weight_decay=0.01,
    clip=1.0,
    bucket_mb=0.05,
    overlap=True,
    eval_every=0,
    eval_samples=5,
)


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
    """A run of a few steps."""
    return Run(
        schema=1,
        study="parity",
        site="local",
        run="parity",
        repeat=1,
        pairing="r1",
        cell={},
        model=MODELS[model],
        data=Data("stdlib", None, 0.1),
        train=replace(
            TRAIN, precision=precision, zero=zero, clip=clip, overlap=overlap, sequence_parallel=sequence_parallel
        ),
        layout=layout,
        scheme=SCHEMES[scheme],
        ranks=layout.ranks,
        threads=1,
        oversubscribe=True,
        device="cpu",
        links=None,
    )


def in_pairs(run: Run) -> Run:
    """With few samples, two at a time: sequence parallelism has to keep them apart."""
    return replace(run, train=replace(run.train, global_batch=8, micro_batch=2))


def label(layout: Layout) -> str:
    return f"dp{layout.dp}-tp{layout.tp}-pp{layout.pp}"
