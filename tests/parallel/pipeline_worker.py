"""Worker that trains with every schedule and recomputation, and compares results with training without a pipeline. The
worker prints JSON lines."""

import json
from contextlib import nullcontext
from functools import partial

import numpy as np
import parity
import shared_text
import torch
from mpi4py import MPI
from parity import meet
from pipeline_cases import FAULTY, FOUR, GRID, STEPS, Case, without_pipeline
from pipeline_faults import FAULTS
from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import Scheme
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pipeline import MicroBatch, Pipeline
from hpcbench.parallel.schedule import SCHEDULES, forward_only
from hpcbench.train import resources
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
CORPUS = shared_text.corpus()


def train(case: Case, comm: MPI.Comm) -> dict[str, object]:
    """Return losses, gradients and weights after each step on rank 0, and the numbers of sent and saved elements."""
    trainer = Trainer(case.run, comm, Progress(Wait.GIVE_WAY, background=True), CORPUS)
    history = []
    for k in range(STEPS):
        result = trainer.step(k)  # without clipping, the gradients remain as reduced
        tensors = [parity.assemble(comm, part(trainer)) for part in (parity.gradients, parity.parameters)]
        history.append((result.loss, *tensors))
    rows = [row for row in trainer.traffic.report() if row.message_bytes]
    sent = {f"{row.dimension} {row.phase} {row.kind}": row.message_bytes for row in rows}
    alive = comm.allgather((trainer.mesh.pp.rank, trainer.pipeline.most_alive))
    # all replicas report the same value
    phases = [stage.to_json() for stage in resources.phase_times(trainer)]
    evaluation = trainer.evaluate()
    return {"history": history, "evaluation": evaluation, "bytes": sent, "alive": dict(alive), "phases": phases}


def differences(ours: dict[str, object], theirs: dict[str, object]) -> dict[str, object]:
    """Return the largest relative errors over the steps.

    Also list the gradients that are not bitwise identical in the first step, and whether any gradient differs in any
    step.
    """
    off: dict[str, object] = {"loss": 0.0, "gradients": 0.0, "weights": 0.0}
    other: list[set[str]] = []
    for (loss, *tensors), (expected, *wanted) in zip(ours["history"], theirs["history"], strict=True):
        other.append(set())
        off["loss"] = max(off["loss"], abs(loss - expected) / expected)
        for name, values, reference in zip(("gradients", "weights"), tensors, wanted, strict=True):
            off[name] = max(off[name], parity.relative_error(values.values, reference.values)[0])
            if name == "gradients":
                pairs = ((key, values.values[key], reference.values[key]) for key in reference.values)
                other[-1] = {key for key, value, wanted in pairs if not np.array_equal(value, wanted)}
    (loss, tokens), (expected, count) = ours["evaluation"], theirs["evaluation"]
    off["evaluation"] = abs(loss - expected) / expected if tokens == count else float("inf")
    return {**off, "other_bits": sorted(other[0]), "ever": bool(set.union(*other))}


def on_ranks(case: Case) -> dict[str, object] | None:
    """Train on the first ranks of the world."""
    meet(WORLD)
    comm = WORLD.Split(0 if WORLD.rank < case.layout.ranks else 1, WORLD.rank)
    return train(case, comm) if WORLD.rank < case.layout.ranks else None


def schedules() -> None:
    """Run the grid, and run each planted fault on a case of the grid."""
    references: dict[str, dict[str, object] | None] = {}
    for fault, case in [*((None, case) for case in GRID), *FAULTY.items()]:
        plain = without_pipeline(case)
        if plain.name not in references:
            references[plain.name] = on_ranks(plain)
        with FAULTS[fault]() if fault else nullcontext():
            results = on_ranks(case)
        if WORLD.rank == 0:
            reference = references[plain.name]
            answer = {
                "fault": fault,
                "case": case.name,
                "bytes": results["bytes"],
                "phases": results["phases"],
                "alive": [results["alive"][stage] for stage in sorted(results["alive"])],
            }
            print(json.dumps({**answer, **differences(results, reference)}), flush=True)


class Half(nn.Module):
    """A model part whose computation takes no time, so that only messages matter."""

    def __init__(self, hidden: int, *, first: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((hidden,), 2.0, dtype=torch.float64))
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x[..., None].double() if self.first else x)


def sizes() -> None:
    """Send messages of a few bytes and of half a MiB, with and without a progress thread."""
    for name, chunks, layout in (("gpipe", 1, Layout(pp=4)), ("1f1b", 1, Layout(pp=4)), ("interleaved", 2, FOUR)):
        for hidden, background in ((1, False), (1 << 15, False), (1 << 15, True)):
            mesh = Mesh(WORLD.Dup(), layout, Progress(Wait.GIVE_WAY, background=background))
            parts = [Half(hidden, first=mesh.first_stage and not chunk) for chunk in range(chunks)]
            pipeline = Pipeline(
                parts,
                mesh=mesh,
                policy=Policy(Scheme(algorithm="native")),
                shape=lambda b, s, h=hidden: (b, s, h),
                dtype=torch.float64,
                device="cpu",
                loss=lambda logits, targets: (logits[..., 0] * targets).sum(),
            )
            batches = [MicroBatch(torch.tensor([[i + 1, 2]]), torch.tensor([[3, 5]])) for i in range(8)]
            shape = {"stages": mesh.pp.size, "microbatches": len(batches), "chunks": chunks}
            losses = pipeline.run(partial(SCHEDULES[name], **shape), batches)
            with torch.no_grad():
                evaluated = pipeline.run(partial(forward_only, **shape), batches)
            gradients = [[float(x) for x in part.scale.grad[[0, -1]]] for part in parts]
            for rank in WORLD.gather((losses, evaluated, gradients)) or []:
                case = {"schedule": name, "hidden": hidden, "background": background}
                print(
                    json.dumps({"fault": None, **case, "losses": rank[0], "evaluated": rank[1], "gradients": rank[2]}),
                    flush=True,
                )


if __name__ == "__main__":
    schedules()
    sizes()
