"""Time the predictions of a thousand different runs, and of one run with 10,240 ranks.

    python benchmarks/predict_speed.py [--runs N] [--turns N] [--tiny]

The runs differ in model, layout and micro-batches, and use the baseline's collectives. Each run is simulated. Times are
processor times of this process after imports, in seconds, the minimum over the turns.
"""

import argparse
import itertools
import time
from pathlib import Path

from provenance import head
from tiny import parse

from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.step import StepModel
from hpcbench.predict.workload import Workload, make_train


def workloads(count: int) -> list[Workload]:
    """Return `count` different runs."""
    variants = []
    for layers, hidden, tp, pp, dp, batch in itertools.product(
        (24, 32, 40, 48), (2048, 4096, 5120, 8192), (1, 2, 4, 8), (1, 2, 4), (2, 4, 8), (1, 2, 3)
    ):
        model = Model(
            name="any",
            layers=layers,
            hidden=hidden,
            heads=32,
            vocab=51200,
            positions="rotary",
            rotary_fraction=0.25,
            parallel_residual=True,
            tied=False,
        )
        train = make_train(global_batch=dp * pp * 4 * batch, micro_batch=1, seq_len=2048, zero=1)
        variants.append(Workload(model, train, Layout(dp=dp, tp=tp, pp=pp), 8))
    return variants[:count]


def seconds(runs: list[Workload], machine: Machine) -> float:
    """Return the processor time for predicting all runs."""
    begin = time.process_time()
    for run in runs:
        assert StepModel(run, machine).run().seconds.value > 0
        assert predict_memory(run, machine.device.memory_bytes).bytes > 0
    return time.process_time() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000, help="different runs")
    parser.add_argument("--turns", type=int, default=3, help="number of turns; the fastest counts")
    options = parse(parser, runs=10, turns=1)
    print(*head(Path(__file__)), sep="\n", flush=True)
    machine = make_gpu_machine("H100", node_gbit=3200)
    assert machine
    many = workloads(options.runs)
    taken = min(seconds(many, machine) for _ in range(options.turns))
    print(f"{len(many)} runs: {taken:.2f} s, goal 2 s for 1000: {'met' if taken * 1000 / len(many) <= 2 else 'missed'}")
    model = Model(
        name="large",
        layers=96,
        hidden=12288,
        heads=96,
        vocab=51200,
        positions="rotary",
        rotary_fraction=0.25,
        parallel_residual=True,
        tied=False,
    )
    large = Workload(
        model, make_train(global_batch=80 * 64, micro_batch=1, seq_len=2048, zero=1), Layout(dp=80, tp=8, pp=16), 8
    )
    taken = min(seconds([large], machine) for _ in range(options.turns))
    print(f"{large.layout.ranks} ranks: {taken:.2f} s, goal 1 s: {'met' if taken <= 1 else 'missed'}")


if __name__ == "__main__":
    main()
