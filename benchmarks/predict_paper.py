"""Predict GPT-NeoX-20B with compressed collectives (arXiv 2409.02423) on Lassen and on current machines.

    python benchmarks/predict_paper.py [--tiny]

The paper reports gains of +22.5 % TFLOPS/GPU and +23.6 % samples/s with one codec for all traffic, and +17.3 % and
+12.7 % with the hybrid, on up to 192 V100. Layout, batch, rates and message types are unknown. The script varies each
of these settings and prints the range of the gains. The last lines search for assumptions under which the published
gains hold: a slower network, 32-bit messages, faster codecs. All numbers are predictions, not measurements.
"""

import argparse
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from provenance import head
from tiny import parse

from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import CommPrecision, MessageFormat, Model
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.prediction import predict
from hpcbench.predict.workload import BASELINE, Workload, make_train

NEOX = Model(
    name="gpt-neox-20b",
    layers=44,
    hidden=6144,
    heads=64,
    vocab=50688,
    positions="rotary",
    rotary_fraction=0.25,
    parallel_residual=True,
    tied=False,
)
SCHEMES = (
    BASELINE,
    NamedScheme(name="naive-mpc", algorithm="encoded", default="mpc"),
    NamedScheme(name="naive-zfp8", algorithm="encoded", default="zfp:8"),
    NamedScheme(name="naive-zfp16", algorithm="encoded", default="zfp:16"),
    NamedScheme(name="mzhybrid", algorithm="encoded", default="mpc", rules=[Rule(dimension="DP", codec="zfp:8")]),
    NamedScheme(
        name="zhybrid-16-8", algorithm="encoded", default="zfp:16", rules=[Rule(dimension="DP", codec="zfp:8")]
    ),
    NamedScheme(
        name="zhybrid-24-8", algorithm="encoded", default="zfp:24", rules=[Rule(dimension="DP", codec="zfp:8")]
    ),
)
NAIVE, HYBRID = 0.225, 0.173
"""Published gains in TFLOPS/GPU."""


@dataclass(frozen=True)
class Case:
    """A combination of values for the unknown settings."""

    tp: int
    pp: int
    samples: int
    """Samples of a replica in a step."""
    messages: MessageFormat
    """Number format of all messages."""
    share: float
    """Fraction of the nominal bandwidth that the network reaches."""
    codec_bytes_per_s: float | None = None

    def __str__(self) -> str:
        codec = f", codecs at {self.codec_bytes_per_s / 1e9:.0f} GB/s" if self.codec_bytes_per_s else ""
        return (
            f"TP {self.tp} PP {self.pp}, {self.samples} samples a replica, {self.messages} messages, network at "
            f"{100 * self.share:.0f} %{codec}"
        )


def gains(case: Case, machine: Machine, ranks: int, per_node: int, precision: str = "fp16") -> dict[str, float]:
    """Return the gain of each scheme over the baseline."""
    dp = ranks // case.tp // case.pp
    train = make_train(
        global_batch=dp * case.samples,
        micro_batch=1,
        seq_len=2048,
        precision=precision,
        zero=1,
        recompute="full",
        bucket_mb=500.0,
        comm_precision=CommPrecision(activations=case.messages, gradients=case.messages, parameters=case.messages),
    )
    fabric = replace(machine.fabric, share=case.share)
    speeds = {}
    if case.codec_bytes_per_s:
        rate = case.codec_bytes_per_s
        for name, ratio in (("zfp:8", None), ("zfp:16", None), ("zfp:24", None), ("mpc", 0.92)):
            speeds[name] = CodecSpeed(rate, rate, 20e-6, ratio, InputBasis.ASSUMED)
    workload = Workload(NEOX, train, Layout(dp=dp, tp=case.tp, pp=case.pp), per_node)
    pairs = [(scheme.name, replace(workload, scheme=scheme)) for scheme in SCHEMES]
    predictions = predict("", pairs, replace(machine, fabric=fabric), baseline="baseline", speeds=speeds)
    return {gains_of_case.scheme: gains_of_case.against.gain for gains_of_case in predictions if gains_of_case.against}


def ranges(cases: list[Case], machine: Machine, ranks: int, per_node: int, precision: str) -> list[dict[str, float]]:
    """Print the range of each scheme's gain over all cases."""
    all_gains = [gains(case, machine, ranks, per_node, precision) for case in cases]
    for scheme in SCHEMES[1:]:
        ordered = sorted(gains_of_case[scheme.name] for gains_of_case in all_gains)
        conclusion = (
            "loses in every case" if ordered[-1] <= 0 else "wins in every case" if ordered[0] > 0 else "depends"
        )
        middle = ordered[len(ordered) // 2]
        print(
            f"  {scheme.name}: {100 * ordered[0]:+.1f} to {100 * ordered[-1]:+.1f} %, median {100 * middle:+.1f} %: "
            f"{conclusion}"
        )
    return all_gains


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=1000, help="largest number of guesses per machine")
    options = parse(parser, cases=2)
    print(*head(Path(__file__)), sep="\n", flush=True)
    lassen = make_gpu_machine("NVIDIA V100-SXM2", memory_gb=16, node_gbit=200, within_gb_s=32)
    today = make_gpu_machine("NVIDIA H100", node_gbit=3200)
    assert lassen and today
    cases = [
        Case(tp, pp, samples, messages, share)
        for (tp, pp), samples, messages, share in itertools.product(
            ((4, 6), (2, 12), (4, 12)), (8, 32), ("fp16", "fp32"), (0.9, 0.5)
        )
    ][: options.cases]
    print(f"Lassen, 192 V100, {len(cases)} guesses; published: uniform +22.5 %, hybrid +17.3 %")
    ranges(cases, lassen, 192, 4, "fp16")
    wanted = [
        Case(tp, pp, samples, messages, share, codec)
        for (tp, pp), samples, messages, share, codec in itertools.product(
            ((4, 6), (4, 12)), (8,), ("fp16", "fp32"), (0.9, 0.5, 0.25), (60e9, 200e9, 600e9)
        )
    ][: options.cases]
    near = []
    for case in wanted:
        predictions = gains(case, lassen, 192, 4)
        naive, hybrid = predictions["naive-zfp8"], max(predictions["zhybrid-16-8"], predictions["zhybrid-24-8"])
        near.append((abs(naive - NAIVE) + abs(hybrid - HYBRID), case, naive, hybrid))
    print("What would have to be true for the published gains; the nearest of these guesses:")
    for _, case, naive, hybrid in sorted(near, key=lambda gains_of_case: gains_of_case[0])[:5]:
        print(f"  {case}: naive-zfp8 {100 * naive:+.1f} %, the better ZHybrid {100 * hybrid:+.1f} %")
    for ranks in (192, 10240):
        modern = [
            Case(8, 2, samples, messages, share)
            for samples in (8, 32)
            for messages in ("fp16", "fp32")
            for share in (0.9, 0.5)
        ]
        modern = modern[: options.cases]
        print(f"H100 with 400 Gbit/s a GPU, {ranks} GPUs, {len(modern)} guesses:")
        ranges(modern, today, ranks, 8, "fp16")


if __name__ == "__main__":
    main()
