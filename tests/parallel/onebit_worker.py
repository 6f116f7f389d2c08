"""Worker that compares 1-bit Adam with a single-process simulation of the paper's algorithm. The worker prints JSON
lines."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import parity
import shared_text
import torch
from mpi4py import MPI
from runs import TRAIN, run_of

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.sign import Sign
from hpcbench.codecs.types import Array, Bytes
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.parallel.adamw import AdamWState
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.onebit import OneBitAdam
from hpcbench.predict import volume
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
RANKS, WARM, STEPS = 4, 2, 4
CODEC = "sign:256"
MOMENTA = Rule(dimension="DP", kind="OPTIM", codec=CODEC, feedback=True)
SIGNS = NamedScheme(name="onebit", algorithm="two-shot", default="none", rules=[MOMENTA], optimizer="onebit-adam")
EXACT = NamedScheme(name="exact", algorithm="two-shot", default="none", optimizer="onebit-adam")
PACKED = EXACT.changed(name="packed", rules=[Rule(dimension="DP", kind="OPTIM", codec="mpc")])
CORPUS = shared_text.corpus()


def run(
    model: str, layout: Layout, scheme: NamedScheme = SIGNS, *, freeze_step: int | None = WARM, **settings: Any
) -> Run:
    """Return a 1-bit Adam run, or an Adam run without a freeze step."""
    plain = run_of(model, layout, zero=0, precision=settings.pop("precision", "fp32"))
    optimizer = "onebit-adam" if freeze_step else "adamw"
    settings = {"steps": STEPS, "global_batch": 8, "micro_batch": 2, "clip": 0.0, **settings}
    train = plain.train.changed(optimizer=optimizer, freeze_step=freeze_step, **settings)
    return plain.changed(train=train, scheme=scheme if freeze_step else scheme.changed(optimizer=None))


def make_trainer(a_run: Run, comm: MPI.Comm) -> Trainer:
    return Trainer(a_run, comm, Progress(Wait.GIVE_WAY, background=a_run.train.overlap), CORPUS)


def bits(trainer: Trainer) -> list[bytes]:
    return [parameter.detach().double().numpy().tobytes() for parameter, _ in trainer.held]


def states(trainer: Trainer) -> list[dict[str, Array]]:
    """Return all optimizer states by piece."""
    return [
        {
            **{name: values.numpy().copy() for name, values in piece.states.items()},
            **({"worker_error": piece.feedback.sent.copy()} if piece.feedback else {}),
            **({"server_error": piece.feedback.summed.copy()} if piece.feedback else {}),
        }
        for piece in trainer.data_parallel.pieces
    ]


# ---------------------------------------------------------------- single-process simulation of all ranks


class Simulation:
    """Simulation of a bucket's masters, momenta and errors on all ranks after the warm-up.

    The simulation implements algorithm 1 of the paper. Each worker adds its stored error and compresses. Each server
    sums, adds its stored error, and compresses again. A rank's contribution to the part that it serves is exact.
    """

    def __init__(self, state: dict[str, Array], bucket: Bucket, planned: Plan) -> None:
        self.master, self.first, self.second = (state[name].copy() for name in ("master", "first", "second"))
        self.worker = np.zeros((RANKS, self.first.size), np.float32)
        self.server = np.zeros((RANKS, self.first.size), np.float32)
        self.decays = [part for slot, part in bucket.parts(slice(0, self.first.size)) if len(slot.shard.shape) > 1]
        self.used = self.second != 0
        self.pieces = [(rank, pieces[rank]) for pieces in planned.slices for rank in range(RANKS)]
        self.updates = WARM

    def step(self, gradients: list[Array], lr: float) -> None:
        """Perform a step, given the gradients of all ranks."""
        f4 = np.float32
        momenta = [
            torch.lerp(torch.from_numpy(self.first), torch.from_numpy(gradient), 1 - TRAIN.beta1).numpy() / f4(RANKS)
            for gradient in gradients
        ]
        total = np.empty_like(self.first)
        for owner, span in self.pieces:
            here = slice(*span)
            total[here] = self.reduce(owner, here, [momentum[here] for momentum in momenta])
        self.first = np.where(self.used, total, f4(0))
        self.worker *= self.used
        self.server *= self.used
        self.updates += 1
        for part in self.decays:
            self.master[part] *= f4(1 - lr * TRAIN.weight_decay)
        root = np.sqrt(self.second) / f4(np.sqrt(1 - TRAIN.beta2**WARM)) + f4(TRAIN.eps)
        self.master += f4(-lr / (1 - TRAIN.beta1**self.updates)) * self.first / root

    def reduce(self, owner: int, here: slice, momenta: list[Array]) -> Array:
        parts = []
        for rank, momentum in enumerate(momenta):
            if rank == owner:
                parts.append(momentum)
                continue
            wanted = momentum + self.worker[rank, here]
            parts.append(signs(wanted))
            self.worker[rank, here] = wanted - parts[-1]
        wanted = ((parts[0] + parts[1]) + parts[2]) + parts[3] + self.server[owner, here]
        result = signs(wanted)
        self.server[owner, here] = wanted - result
        return result


def signs(values: Array) -> Array:
    """Return the decoded signs: +- the mean magnitude of each block, rounded as in kernels/hb_sign.h."""
    codec = get_codec(CODEC)
    wire, out = np.empty(codec.wire_bytes(values.size, values.dtype), np.uint8), np.empty_like(values)
    codec.decode(wire[: codec.encode(np.ascontiguousarray(values), wire)], out)
    assert np.array_equal(np.signbit(out), np.signbit(values))
    for start in range(0, values.size, 256):
        block = slice(start, start + 256)
        assert np.allclose(np.abs(out[block]), np.abs(values[block]).mean(), rtol=1e-5)
    return out


def planned_for(n: int) -> Plan:
    topology = Topology.of(WORLD)
    return plan(
        Request(
            Operation.ALL_REDUCE,
            n,
            np.dtype("f4"),
            topology,
            get_codec(CODEC),
            algorithm=Algorithm.TWO_SHOT,
            feedback=True,
        )
    )


def follow(fault: Callable[[], Any]) -> dict[str, Any] | None:
    """Plant a fault after the warm-up, train, and compare every step with the simulation."""
    trainer = make_trainer(run("neox", Layout(dp=RANKS)), WORLD.Dup())
    engine = trainer.data_parallel
    assert isinstance(engine, OneBitAdam)
    simulations: list[Simulation] = []
    worst = {"master": 0.0, "first": 0.0, "errors": 0.0, "lost": 0.0}
    unknown = True
    for k in range(STEPS):
        if k == WARM:
            states_here = states(trainer)
            simulations = [
                Simulation(state, piece.bucket, planned_for(piece.master.numel()))
                for state, piece in zip(states_here, engine.pieces, strict=True)
            ]
        with fault() if k >= WARM else nullcontext():
            trainer.backward(k)
            everyone = WORLD.allgather([piece.gradient.numpy().copy() for piece in engine.pieces])
            before = WORLD.allgather(states(trainer))
            lr, norm = trainer.update(k)
            after = WORLD.allgather(states(trainer))
        if k < WARM:
            continue
        unknown &= norm is None
        for i, simulation in enumerate(simulations):
            gradients = [gradients[i] for gradients in everyone]
            simulation.step(gradients, lr)
            for rank in range(RANKS):
                for name, want in (
                    ("master", simulation.master),
                    ("first", simulation.first),
                    ("errors", simulation.worker[rank]),
                    ("errors", simulation.server[rank]),
                ):
                    key = name if name != "errors" else ("worker_error", "server_error")[want.base is simulation.server]
                    actual = after[rank][i][key]
                    worst[name] = max(worst[name], float(np.abs(actual - want).max() / (np.abs(want).max() or 1)))
            loss = lost([rank[i] for rank in before], [rank[i] for rank in after], gradients, simulation.used)
            worst["lost"] = max(worst["lost"], loss)
    if WORLD.rank:
        return None
    used = [int(simulation.used.sum()) for simulation in simulations]
    unused = [int((~simulation.used).sum()) for simulation in simulations]
    return {**worst, "unknown": unknown, "used": sum(used), "unused": sum(unused), "buckets": len(used)}


def lost(before: list[dict[str, Array]], after: list[dict[str, Array]], gradients: list[Array], used: Array) -> float:
    """Return the relative norm of the values that are neither in a step's output nor in the stored errors."""
    f8 = np.float64
    errors = ("worker_error", "server_error")
    beta = TRAIN.beta1
    wanted = sum(beta * state["first"].astype(f8) + (1 - beta) * g for state, g in zip(before, gradients, strict=True))
    wanted = wanted / RANKS + sum(state[name].astype(f8) for state in before for name in errors)
    retained = after[0]["first"] + sum(state[name].astype(f8) for state in after for name in errors)
    return float(np.linalg.norm((wanted - retained)[used]) / np.linalg.norm(wanted))


# ---------------------------------------------------------------- planted faults


def no_residual(side: str) -> Any:
    return patch.object(Feedback, side, lambda self, span: np.zeros(span.size, np.float32))


def worker_error_dropped() -> Any:
    """A rank discards its compression error instead of adding it to the next message."""
    return no_residual("worker")


def server_error_dropped() -> Any:
    """A server discards the compression error of a sum instead of adding it to the next sum."""
    return no_residual("server")


def variance_not_frozen() -> Any:
    """Each rank continues to update the variance with its own gradients."""
    add = AdamWState.add_to_first

    def faulty(self: AdamWState, gradient: torch.Tensor) -> None:
        add(self, gradient)
        self.second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)

    return patch.object(AdamWState, "add_to_first", faulty)


def scale_of_another_block() -> Any:
    """Signs are sent with the magnitude of the previous block."""
    encode = Sign.encode

    def faulty(self: Sign, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        used = encode(self, x, out, residual=residual, seed=seed)
        scales = out[-(-x.size // 32) * 4 : used].view(np.float32)
        scales[:] = np.roll(scales, 1)
        return used

    return patch.object(Sign, "encode", faulty)


def unused_not_cleared() -> Any:
    """The momentum of elements that have no gradient is set to the magnitude of their block."""
    return patch.object(OneBitAdam, "_clear_unused", lambda self, piece: None)


def clipped_by_replicas_norms() -> Any:
    """After the freeze, gradients are clipped by the root mean square of the replicas' norms."""
    step = OneBitAdam.step

    def faulty(self: OneBitAdam, **settings: Any) -> None:
        if self.frozen:
            norm = self._world_norm(self._square(self.pieces) / self._mesh.dp.size)
            for piece in self.pieces:
                piece.gradient *= min(1.0, TRAIN.clip / norm)
        step(self, **settings)

    return patch.object(OneBitAdam, "step", faulty)


FAULTS: dict[str, Callable[[], Any]] = {
    "none": nullcontext,
    "worker_error_dropped": worker_error_dropped,
    "server_error_dropped": server_error_dropped,
    "variance_not_frozen": variance_not_frozen,
    "scale_of_another_block": scale_of_another_block,
    "unused_not_cleared": unused_not_cleared,
}


def simulated() -> None:
    for name, fault in FAULTS.items():
        answer = follow(fault)
        if answer is not None:
            print(json.dumps({"case": "simulated", "fault": name, **answer}), flush=True)


# ---------------------------------------------------------------- other tests of the engine


def warm_up() -> dict[str, Any]:
    """Check that the warm-up is bitwise identical to Adam, and print the bytes of a step."""
    ours = make_trainer(run("neox", Layout(dp=RANKS)), WORLD.Dup())
    plain = make_trainer(run("neox", Layout(dp=RANKS), freeze_step=None), WORLD.Dup())
    same, grads, momenta = [], [], []
    for k in range(STEPS):
        ours.step(k)
        plain.step(k)
        same.append(bits(ours) == bits(plain))
        counters = [
            ours.policy.channel(Dimension.DP, phase, kind).counters
            for phase, kind in ((Phase.BACKWARD, MessageKind.GRAD), (Phase.STEP, MessageKind.OPTIM))
        ]
        grads.append(counters[0].message_bytes)
        momenta.append((counters[1].message_bytes, counters[1].wire_bytes))
    plans = [planned_for(piece.master.numel()) for piece in ours.data_parallel.pieces]
    per_step = [sum(p.message_bytes(WORLD.rank) for p in plans), sum(p.wire_bytes(WORLD.rank) for p in plans)]
    settings = ours.run.model, ours.run.train, ours.run.layout
    steps = [volume.count_all_ranks_bytes(*settings, updates=k) for k in range(STEPS)]
    predicted = [[step.get(key, 0) for step in steps] for key in (("DP", "BACKWARD", "GRAD"), ("DP", "STEP", "OPTIM"))]
    return {
        "same": same,
        "gradients": grads,
        "momenta": momenta,
        "one_step": per_step,
        "predicted": predicted,
        "agree": replicas_agree(ours),
    }


def frozen_adam(self: AdamWState, master: torch.Tensor, gradient: torch.Tensor, *, lr: float, factor: float) -> None:
    """Compute a step of Adam with a frozen variance directly from the formula."""
    assert factor == 1.0, "nothing is clipped"
    self.updates += 1
    for part in self._decays:
        master[part] *= 1 - lr * TRAIN.weight_decay
    self.first.mul_(TRAIN.beta1).add_(gradient, alpha=1 - TRAIN.beta1)
    self.first[self.second == 0] = 0
    root = (self.second / (1 - TRAIN.beta2**WARM)).sqrt() + TRAIN.eps
    master -= lr / (1 - TRAIN.beta1**self.updates) * self.first / root


def alone(model: str) -> Any:
    """Return the weights of single-process Adam, without and with a variance frozen after the freeze step."""
    trainer = make_trainer(run(model, Layout(), freeze_step=None, precision="fp64"), MPI.COMM_SELF.Dup())
    for k in range(STEPS):
        with patch.object(AdamWState, "step", frozen_adam) if k >= WARM else nullcontext():
            trainer.step(k)
    weights = parity.assemble(MPI.COMM_SELF, parity.parameters(trainer))
    assert weights is not None
    return weights.values


def layouts() -> Iterator[dict[str, Any]]:
    """Compare 1-bit Adam in several layouts.

    Lossless momenta are compared with Adam in one process. With signs, replicas and tied copies must be identical.
    """
    for model, layout in (("neox", Layout(dp=2, tp=2)), ("neox", Layout(dp=RANKS)), ("gpt2", Layout(dp=2, pp=2))):
        reference = alone(model) if WORLD.rank == 0 else None
        for scheme, precision, fault in (
            (EXACT, "fp64", nullcontext),
            (PACKED, "fp64", nullcontext),
            (EXACT, "fp64", clipped_by_replicas_norms),
            (SIGNS, "bf16", nullcontext),
        ):
            trainer = make_trainer(run(model, layout, scheme, precision=precision), WORLD.Dup())
            with fault():
                for k in range(STEPS):
                    trainer.step(k)
            weights = parity.assemble(WORLD, parity.parameters(trainer))
            answer: dict[str, Any] = {"scheme": scheme.name, "fault": fault.__name__, "agree": replicas_agree(trainer)}
            if weights is not None:
                answer["differ"] = weights.replicas_differ
                if scheme is not SIGNS:
                    answer["error"], _ = parity.relative_error(weights.values, reference)
            yield {"model": model, **answer}


def resumed() -> dict[str, Any]:
    """Check that steps after a checkpoint, including stored errors, are bitwise identical to uninterrupted steps."""
    settings = run("neox", Layout(dp=RANKS), precision="bf16")
    uninterrupted, first, second = (make_trainer(settings, WORLD.Dup()) for _ in range(3))
    for k in range(STEPS):
        uninterrupted.step(k)
    for k in range(WARM + 1):
        first.step(k)
    file = io.BytesIO()
    torch.save(first.state(), file)
    file.seek(0)
    second.load(torch.load(file, weights_only=False))
    for k in range(WARM + 1, STEPS):
        second.step(k)
    same = all(
        np.array_equal(a[name], b[name])
        for a, b in zip(states(uninterrupted), states(second), strict=True)
        for name in a
    )
    engine = second.data_parallel
    errors = {
        name: sum(float(np.abs(s[name]).sum()) for s in states(second)) for name in ("worker_error", "server_error")
    }
    return {"same": same and bits(uninterrupted) == bits(second), "frozen": engine.frozen, **errors}


def overflow() -> dict[str, Any]:
    """Plant a non-finite gradient on one rank after the warm-up.

    All ranks must skip the step and keep their errors.
    """
    trainer = make_trainer(run("neox", Layout(dp=RANKS), precision="fp16"), WORLD.Dup())
    for k in range(WARM + 1):
        trainer.step(k)
    before, weights, scale = states(trainer), bits(trainer), trainer._scale.value
    trainer.backward(WARM + 1)
    if WORLD.rank == 1:
        trainer.data_parallel.pieces[0].gradient[3] = torch.inf
    trainer.update(WARM + 1)
    unchanged = all(
        np.array_equal(a[name], b[name]) for a, b in zip(before, states(trainer), strict=True) for name in a
    )
    unchanged &= weights == bits(trainer)
    trainer.step(WARM + 2)
    moved = weights != bits(trainer)
    return {
        "kept": unchanged,
        "skipped": trainer.skipped,
        "moved": moved,
        "agree": replicas_agree(trainer),
        "scale": scale,
    }


def tell(answer: dict[str, Any]) -> None:
    for each in WORLD.gather(answer) or []:
        print(json.dumps(each), flush=True)


def everything() -> None:
    simulated()
    tell({"case": "warm_up", **warm_up()})
    for answer in layouts():
        tell({"case": "layouts", **answer})
    tell({"case": "resumed", **resumed()})
    tell({"case": "overflow", **overflow()})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
