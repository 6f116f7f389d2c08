"""The parts of the benchmark: layouts, each with its own settings of the study."""

from dataclasses import dataclass

SHARES = (20.0, 50.0)
"""Percentages of the baseline's time that the link should cost, from which the rates are computed."""
FEW = "matrix.scheme=[baseline, identity, naive-bf16, naive-int8, zhybrid-16-8]"
TINY_STEPS = ("train.steps=6", "train.warmup_steps=2", "train.seq_len=32", "train.eval_samples=4")
TINY = (*TINY_STEPS, "repeats=2", "matrix.scheme=[baseline, identity, naive-int8]")
"""Settings of a measurement that takes only seconds, and whose numbers are meaningless."""


def _two(dp: int, tp: int) -> tuple[str, ...]:
    """Return the settings of two hosts with one rank each."""
    return (f"layout.dp={dp}", f"layout.tp={tp}", "layout.pp=1", "nodes=2", "ranks_per_node=1")


TWO_REPLICAS = _two(dp=2, tp=1)


@dataclass(frozen=True)
class Part:
    """Runs that are measured and shown together."""

    name: str
    title: str
    hosts: int
    ranks_a_host: int
    settings: tuple[str, ...] = ()
    """``KEY=VALUE`` settings that override the study."""
    shares: tuple[float, ...] = SHARES
    free: bool = True
    """Whether to measure without a limit as well, to determine how much of a gain is due to the link."""
    tiny: tuple[str, ...] = ()
    """Settings for `--tiny` in addition to `TINY`."""


PARTS = {
    part.name: part
    for part in (
        Part("shared", "eight ranks on four hosts: dp 2 x tp 2 x pp 2, ranks share cores", 4, 2),
        Part("own", "two ranks on two hosts: dp 2, a core for each rank", 2, 1, TWO_REPLICAS),
        Part(
            "tensor",
            "two ranks on two hosts: tp 2 across the link, a core for each rank",
            2,
            1,
            (*_two(dp=1, tp=2), FEW),
        ),
        Part(
            "curve",
            "tokens a replica and step: two ranks on two hosts, dp 2, a core for each rank",
            2,
            1,
            (
                *TWO_REPLICAS,
                "matrix.scheme=[baseline, naive-bf16, naive-int8, zhybrid-16-8]",
                "matrix.train.global_batch=[4, 8, 16, 32]",
            ),
            shares=(40.0,),
            free=False,
            tiny=("matrix.train.global_batch=[4, 8]",),
        ),
    )
}
