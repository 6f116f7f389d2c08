"""Measure the cost of a trace: time alternating steps with and without a recorder, and the checks for a recorder.

    python benchmarks/trace_cost.py [--ranks 2] [--hidden 128] [--turns 40] [--json FILE] [--tiny]

Each turn takes one step with and one without a recorder in the same processes, in alternating order. Without a trace,
each span only checks whether a recorder exists. The cost per step is the number of these checks, counted in the traced
steps, times the time of one check. Requires hpcbench[train,local].
"""

import argparse
import json
import sys
import timeit
from pathlib import Path
from statistics import median
from typing import Any

import tiny
from provenance import head
from shared import make_table, run_ranks, write_results

from hpcbench.console import show_table
from hpcbench.report.statistics import paired_difference


def worker(hidden: int, turns: int) -> None:
    """Run the steps on all ranks. Rank 0 prints its measurements."""
    from mpi4py import MPI

    from hpcbench.comm.channel import Channel
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.recorder import Recorder
    from hpcbench.comm.wait import Wait
    from hpcbench.contract.layout import Layout
    from hpcbench.contract.run import Run
    from hpcbench.contract.scheme import NamedScheme
    from hpcbench.contract.training import Data, Model, Train
    from hpcbench.train import text
    from hpcbench.train.trainer import Trainer

    world = MPI.COMM_WORLD
    run = Run(
        schema=1,
        study="trace-cost",
        site="local",
        run="r1",
        repeat=1,
        pairing="r1",
        cell={},
        model=Model(layers=4, hidden=hidden, heads=4),
        data=Data(),
        train=Train(steps=2 * turns + 2, warmup_steps=2, global_batch=2 * world.size, seq_len=64, bucket_mb=0.25),
        layout=Layout(dp=world.size),
        scheme=NamedScheme(name="naive-zfp8", algorithm="two-shot", default="zfp:8"),
        ranks=world.size,
        threads=1,
        oversubscribe=True,
        device="cpu",
        links=None,
    )
    progress = Progress(Wait.GIVE_WAY, background=True)
    corpus = text.load_shared(world, progress, run.data, run.train.seq_len, run.model.vocab)
    trainer = Trainer(run, world.Dup(), progress, corpus)
    recorder = Recorder(trainer.clock, most=10**9)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for k in range(2 * turns + 2):
        traced = (k % 2 == 1) != (k // 2 % 2 == 1)
        if traced:
            recorder.begin(k)
            trainer.record(recorder)
        result = trainer.step(k)
        trainer.record(None)
        if k >= 2:
            seconds[traced].append(result.seconds)
    channel: Channel = trainer.policy.exact
    asks = 200_000
    empty = min(timeit.repeat("pass", number=asks, repeat=5))
    asked = min(timeit.repeat("c.recorder is not None", globals={"c": channel}, number=asks, repeat=5))
    if world.rank == 0:
        spans = len([span for span in recorder.spans() if span.step >= 2])
        measured = {"off": seconds[False], "on": seconds[True], "spans": spans / len(seconds[True])}
        print(json.dumps({**measured, "question_s": max(asked - empty, 0.0) / asks}))


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128, help="width of the model")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", type=Path, help="also write the numbers to a file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = tiny.parse(parser, hidden=16, turns=2)
    if options.worker:
        worker(options.hidden, options.turns)
        return 0
    print(*head(Path(__file__)), sep="\n")
    (measured,) = run_ranks(options.ranks)
    show(measured, options.ranks)
    write_results(options.json, Path(__file__), measured)
    return 0


def show(measured: dict[str, Any], ranks: int) -> None:
    """Print the table and the resulting cost."""
    off, on = median(measured["off"]), median(measured["on"])
    title = f"ms a step, {ranks} ranks, {len(measured['on'])} turns"
    table = make_table("trace", "median", "spans a step", left=("trace",), title=title)
    table.add_row("off", f"{off * 1e3:.3f}", "0")
    table.add_row("on", f"{on * 1e3:.3f}", f"{measured['spans']:.0f}")
    show_table(table)
    change = paired_difference(measured["on"], measured["off"])
    share = change.estimate / off
    ends = (
        "" if change.low is None or change.high is None else f" ({change.low / off:+.1%} to {change.high / off:+.1%})"
    )
    print(f"on: {share:+.1%} of a step{ends}")
    paid = measured["spans"] * measured["question_s"]
    questions = f"{measured['spans']:.0f} questions of {measured['question_s'] * 1e9:.0f} ns"
    print(f"off: {questions}: {paid / off * 100:.4f} % of a step")


if __name__ == "__main__":
    sys.exit(main())
