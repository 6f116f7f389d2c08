"""Worker that counts matrix-product operations per step of models with experts. The worker prints one JSON line per
case."""

import json
from typing import Any

import expert_cases  # noqa: F401  puts its models with experts into the cases
import parity_worker
from cases import Case, run_of
from mpi4py import MPI
from torch.utils.flop_counter import FlopCounterMode

from hpcbench.contract.run import Run
from hpcbench.predict import flops
from hpcbench.train.facts import shape_of

WORLD = MPI.COMM_WORLD
MODEL: Case = {"model": "neox", "model.layers": 2, "train.global_batch": 8, "train.zero": 0}
LAYOUTS: dict[str, Case] = {
    "one rank": {},
    "dp2-ep2": {"layout.dp": 2, "layout.ep": 2},
    "dp2-tp2": {"layout.dp": 2, "layout.tp": 2},
    "dp4-ep4": {"layout.dp": 4, "layout.ep": 4},
    "dp2-ep2-pp2": {"layout.dp": 2, "layout.ep": 2, "layout.pp": 2},
}
KINDS = ("tight", "roomy", "switch", "alternate")
AGAIN = {"dp2-ep2": "full"}
"""Layouts that run the forward pass twice."""


def step(run: Run, comm: MPI.Comm) -> tuple[int, float]:
    """Return the numbers of operations and of accepted expert choices in a step, each summed over ranks."""
    trainer = parity_worker.make_trainer(run, comm)
    with FlopCounterMode(display=False) as counter:
        trainer.backward(0)
    return comm.allreduce(counter.get_total_flops()), comm.allreduce(trainer.experts.take_kept())


def beyond_dense(run: Run, kept_tokens: float) -> dict[str, Any]:
    """Compute the number of operations that a dense model does not need, from formulas and accepted choices."""
    shape, recompute = shape_of(run), run.train.recompute
    experts = shape.pop("experts")
    experts = experts._replace(kept_rows=kept_tokens / run.train.global_batch / experts.layers)
    model, hardware = (
        [form(**shape, experts=each) * run.train.global_batch for each in (flops.DENSE, experts)]
        for form in (
            flops.count_model_flops,
            lambda **sizes: flops.count_hardware_flops(**sizes, recompute=recompute),
        )
    )
    return {"needed": model[1] - model[0], "executed": hardware[1] - hardware[0]}


def main() -> None:
    """Count the operations of every case, and of the same model without experts in one process."""
    dense: dict[str, int] = {}
    for layout, place in LAYOUTS.items():
        settings = {**MODEL, **place, "train.recompute": AGAIN.get(layout, "none")}
        recompute = settings["train.recompute"]
        if WORLD.rank == 0 and recompute not in dense:
            dense[recompute], _ = step(run_of({**MODEL, "train.recompute": recompute}), MPI.COMM_SELF.Dup())
        for kind in KINDS:
            run = run_of({**settings, "model.experts": kind})
            parity_worker.meet(WORLD)
            comm = WORLD.Split(int(WORLD.rank >= run.ranks), WORLD.rank)
            if WORLD.rank >= run.ranks:
                continue
            counted, kept_tokens = step(run, comm)
            if WORLD.rank == 0:
                report = {"layout": layout, "experts": kind, "counted": counted - dense[recompute], "kept": kept_tokens}
                print(json.dumps({**report, **beyond_dense(run, kept_tokens)}), flush=True)


if __name__ == "__main__":
    main()
