"""Worker that trains with a parameter server distributed over the ranks. The worker prints JSON lines."""

import io
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import parity
from cases import BASE
from mpi4py import MPI
from runs import run_of

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.server import ServerShard
from hpcbench.predict.volume import count_all_ranks_bytes
from hpcbench.train import text
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train, trainer_of
from hpcbench.train.serving import ServedTrainer
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = text.load(BASE.data, BASE.train.seq_len)
STEPS, WORKERS = 6, 3
IDENTITY = NamedScheme(name="identity", algorithm="two-shot", default="none")
CODED = NamedScheme(
    name="coded",
    algorithm="encoded",
    default="none",
    rules=[Rule(dimension="DP", codec="int8:256", feedback=True), Rule(dimension="ZERO", codec="int8:256")],
)


def run(sync: str, scheme: NamedScheme = IDENTITY, **settings: Any) -> Run:
    base = run_of("neox", Layout(dp=WORKERS), precision="fp32", clip=0.0)
    train = base.train.changed(
        **{"steps": STEPS, "global_batch": 2 * WORKERS, "lr": 1e-2, "eval_samples": 6, "sync": sync, **settings}
    )
    return base.changed(scheme=scheme, train=train)


def make_trainer(settings: Run) -> Trainer:
    return trainer_of(settings, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=True), CORPUS)


def weights(trainer: Trainer) -> dict[str, Any]:
    assembled = parity.assemble(WORLD, parity.parameters(trainer))
    return assembled.values if assembled else {}


def read_losses(stream: io.StringIO) -> list[float]:
    """Return the losses of the steps and of the evaluations."""
    losses = []
    for line in stream.getvalue().splitlines():
        if line.startswith("step "):
            losses.append(float(line.split("| loss ")[1].split()[0]))
        elif '"evaluation"' in line:
            losses.append(json.loads(line)["loss"])
    return losses


def run_whole(settings: Run) -> tuple[Trainer, list[float], tuple[str, str, int], dict[str, Any]]:
    stream = io.StringIO()
    trainer = make_trainer(settings)
    outcome = train(trainer, LogWriter(stream if WORLD.rank == 0 else None))
    return trainer, read_losses(stream), outcome, weights(trainer)


def tell(**answer: Any) -> None:
    if WORLD.rank == 0:
        print(json.dumps(answer), flush=True)


def same_bits() -> None:
    """Compare BSP with collectives, and zero-bound SSP with BSP. Results must be bitwise identical."""
    runs = {
        "all-reduce": run("all-reduce", eval_every=3),
        "bsp": run("bsp", eval_every=3),
        "ssp0": run("ssp", eval_every=3),
    }
    results = {name: run_whole(settings) for name, settings in runs.items()}
    for name, (trainer, losses, outcome, values) in results.items():
        other = results["all-reduce"]
        same = all(np.array_equal(values[key], other[3][key]) for key in values)
        stale = trainer.staleness()
        counts = [place.counts for place in stale.places] if stale else []
        tell(bits=name, same=same, losses=losses, expected=other[1], outcome=outcome, staleness=counts)


class Held:
    """A gate that delays each gradient of the last rank until all other ranks are ahead by the bound."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._turn = ServedTrainer.turn

    def __call__(self, trainer: ServedTrainer) -> bool:
        rank = trainer.mesh.rank
        if rank == WORKERS - 1:
            shard, clock = trainer.server.shard, trainer.worker.clock
            most = min(clock + self._bound + 1, STEPS)
            trainer.server.wait(lambda: min(shard.clocks[:-1]) >= most)
        return self._turn(trainer)


def bounds() -> None:
    """Print the traces of all shards if one worker is as late as possible.

    The staleness rule is correct, or off by one.
    """

    def off_by_one(self: ServerShard, clock: int) -> bool:
        return self.bound is None or min(self.clocks) >= clock - self.bound - 1

    for fault in (False, True):
        for bound in (0, 1, 3) if not fault else (1,):
            settings = run("ssp", staleness=bound, warmup_steps=0)  # one round; its end would limit the lead
            held = Held(bound + fault)
            with patch.object(ServedTrainer, "turn", lambda trainer, held=held: held(trainer)):
                rule = (
                    patch.object(ServerShard, "may_read", off_by_one)
                    if fault
                    else patch.object(ServerShard, "MARK", 0, create=True)
                )
                with rule:
                    trainer, losses, outcome, _ = run_whole(settings)
            traces = WORLD.gather([list(entry) for entry in trainer.server.shard.trace])
            clocks = WORLD.gather(trainer.server.shard.clocks)
            tell(bound=bound, fault=fault, traces=traces, clocks=clocks, outcome=outcome, losses=losses)


SCRIPT = [
    *((0, "read"), (1, "read"), (2, "read"), (0, "write"), (0, "read"), (0, "write"), (1, "write")),
    *((1, "read"), (0, "read"), (0, "write"), (2, "write"), (2, "read"), (1, "write"), (2, "write")),
    *((1, "read"), (1, "write"), (0, "read"), (0, "write")),
]
"""Script of nine gradients: four from the first worker, three from the second, two from the third."""


def scripted() -> None:
    """Run the workers one at a time, in the order of a script."""
    trainer = make_trainer(run("asp", steps=3, warmup_steps=0))
    assert isinstance(trainer, ServedTrainer)
    trainer.begin_counting()
    trainer.open(3)
    loss = pushed = 0.0
    for who, what in SCRIPT:
        if trainer.mesh.rank == who and what == "read":
            assert trainer.read()
            loss = trainer.compute()
        elif trainer.mesh.rank == who:
            trainer.write(loss)
        pushed += what == "write"
        trainer.server.wait(lambda pushed=pushed: sum(trainer.server.shard.clocks) == pushed)
        exact_sum(trainer.mesh.world, [1.0], trainer.policy.exact)
    left = trainer.turn()
    last = trainer.close()
    traces = WORLD.gather([list(entry) for entry in trainer.server.shard.trace])
    stale = trainer.staleness()
    trainer.finish()
    losses = [result.loss for result in trainer.results()]
    counts = [place.counts for place in stale.places]
    tell(script=True, traces=traces, more=left, last=last, staleness=counts, losses=losses)


def coded() -> None:
    """Check codecs in both directions, with error feedback on pushes, for each synchronization mode."""
    for sync in ("bsp", "ssp", "asp"):
        settings = run(sync, CODED, staleness=2 if sync == "ssp" else 0)
        trainer, losses, outcome, _ = run_whole(settings)
        rows = {row.dimension: row for row in trainer.traffic.report()}
        residual = sum(float(r["sent"].abs().sum()) for r in trainer.data_parallel.residuals().values())
        sizes = {name: [rows[name].message_bytes, rows[name].wire_bytes] for name in ("DP", "ZERO")}
        clocks = WORLD.gather(trainer.server.shard.clocks)
        counted = STEPS + 1 - find_first_counted(settings.train.warmup_steps, STEPS, 0)
        by_form = count_all_ranks_bytes(settings.model, settings.train, settings.layout)
        forms = {
            "DP": counted * by_form["DP", "BACKWARD", "GRAD"],
            "ZERO": counted * by_form["ZERO", "STEP", "PARAM"],
            "elements": counted * sum(piece.bucket.values.numel() for piece in trainer.data_parallel.pieces),
        }
        about = {"forms": forms, "clocks": clocks}
        tell(coded=sync, losses=losses, outcome=outcome, residual=residual, bytes=sizes, **about)


def resumes() -> None:
    """Check that a BSP run with a checkpoint is bitwise identical to a run without one."""
    directory = Path(WORLD.bcast(tempfile.mkdtemp()))
    settings = run("bsp", CODED, checkpoint_every=4)
    expected = run_whole(settings)[3]
    checkpoints = Checkpoints(directory, WORLD.Dup(), settings)
    saved = directory / "clocks"
    first = make_trainer(settings)
    train(first, LogWriter(None), checkpoints=checkpoints)
    first.write_clocks(saved)
    second = make_trainer(settings)
    newest = checkpoints.find().newest
    assert newest is not None
    second.load(checkpoints.load(newest, second.state()))
    outcome = train(second, LogWriter(None), taken=newest.step)
    second.write_clocks(saved)
    WORLD.Barrier()
    recorded = [path.read_text().splitlines() for path in sorted(saved.iterdir())]
    values = weights(second)
    same = all(np.array_equal(values[key], expected[key]) for key in values)
    tell(resume=same, outcome=outcome, step=newest.step, recorded=recorded)


def differing() -> None:
    """Modify the second rank's weights at the end of the first round, so that replicas differ at a checkpoint."""
    settings = run("bsp", checkpoint_every=3)
    close = ServedTrainer.close

    def changed(self: ServedTrainer) -> int:
        last = close(self)
        self.data_parallel.pieces[0].bucket.values[0] += float(WORLD.rank == 1)
        return last

    checkpoints = Checkpoints(Path(WORLD.bcast(tempfile.mkdtemp())), WORLD.Dup(), settings)
    trainer = make_trainer(settings)
    assert isinstance(trainer, ServedTrainer)
    with patch.object(ServedTrainer, "close", changed):
        outcome = train(trainer, LogWriter(None), checkpoints=checkpoints)
    tell(differing=True, outcomes=WORLD.gather(outcome), serving=WORLD.gather(trainer.serving))


def killed(what: str) -> None:
    """Kill a rank in the middle of a round, while it computes or while it serves a push."""
    trainer = make_trainer(run("asp", steps=50))
    if WORLD.rank == 1:
        if what == "worker":
            compute = ServedTrainer.compute

            def dying(self: ServedTrainer) -> float:
                if self.worker.clock == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                return compute(self)

            ServedTrainer.compute = dying
        else:

            def refusing(updates: object) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            trainer.server.shard.on_update = refusing
    train(trainer, LogWriter(None))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        killed(sys.argv[1])
    else:
        same_bits()
        bounds()
        scripted()
        coded()
        resumes()
        differing()
