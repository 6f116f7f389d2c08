"""Worker that tests half-precision messages, bf16 weights, and overflows hidden by a codec.

The worker prints JSON lines.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import PropertyMock, patch

import numpy as np
import parity
import shared_text
import torch
from mpi4py import MPI
from runs import run_of

from hpcbench.codecs.base import Codec
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, Array, Bytes
from hpcbench.comm import policy
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.comm.memory import HostMemory
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.contract.training import CommPrecision
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.pipeline import Pipeline
from hpcbench.predict import volume
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

WORLD = MPI.COMM_WORLD
RANKS, N = 4, 5000
HALF = {"fp16": np.dtype(np.float16), "bf16": BFLOAT16}
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}
"""Half a unit in the last place."""
CORPUS = shared_text.corpus()


def contribution(rank: int) -> Array:
    return np.random.default_rng(rank).standard_normal(N).astype(np.float32)


def channel(codec: str, name: str, algorithm: Algorithm = Algorithm.ENCODED) -> Channel:
    return Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(codec), algorithm, dtype=HALF[name])


def digests_equal(values: Array) -> bool:
    return len(set(WORLD.allgather(values.tobytes()))) == 1


def operations() -> Iterator[dict[str, Any]]:
    """Test each operation with half-precision messages, in a flat group and on two nodes."""
    everyone = [contribution(rank) for rank in range(RANKS)]
    exact = np.sum(everyone, axis=0, dtype=np.float64)
    magnitudes = np.sum(np.abs(everyone), axis=0, dtype=np.float64)
    piece = cut_evenly(N, RANKS)[WORLD.rank]
    for nodes in (1, 2):
        group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
        group.topology = Topology.regular(nodes, RANKS // nodes)
        for name, half in HALF.items():
            for codec in ("none", "mpc"):
                report: dict[str, Any] = {"nodes": nodes, "dtype": name, "codec": codec}
                reduced, ch = contribution(WORLD.rank), channel(codec, name)
                group.all_reduce(reduced, channel=ch).wait()
                # each contribution and the sum are rounded once, and so are sums within nodes
                bound = UNIT[name] * (nodes * magnitudes + (1 + 2 * UNIT[name]) * magnitudes) * 1.01
                report["all_reduce"] = float((np.abs(reduced - exact) / bound).max())
                report["replicas"] = digests_equal(reduced)
                report["rounded"] = bool(np.array_equal(reduced, reduced.astype(half).astype(np.float32)))
                plain = Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(codec), Algorithm.TWO_SHOT)
                narrow = replace(plain, dtype=half, counters=type(plain.counters)())
                for each in (plain, narrow):
                    group.all_reduce(contribution(WORLD.rank), channel=each).wait()
                report["halved"] = plain.counters.message_bytes == 2 * narrow.counters.message_bytes > 0
                if codec == "none":
                    report["wire"] = narrow.counters.wire_bytes == narrow.counters.message_bytes
                scattered = np.full(count_elements(piece), np.nan, np.float32)
                group.reduce_scatter(contribution(WORLD.rank), scattered, channel=ch).wait()
                report["reduce_scatter"] = float((np.abs(scattered - exact[piece]) / bound[piece]).max())
                want = np.concatenate([everyone[r][p] for r, p in enumerate(cut_evenly(N, RANKS))]).astype(half)
                gathered = np.full(N, np.nan, np.float32)
                group.all_gather(contribution(WORLD.rank)[piece], gathered, channel=ch).wait()
                report["all_gather"] = bool(np.array_equal(gathered, want.astype(np.float32)))
                sent = contribution(0 if WORLD.rank == 0 else 99)
                group.broadcast(sent, 0, channel=ch).wait()
                report["broadcast"] = bool(np.array_equal(sent, everyone[0].astype(half).astype(np.float32)))
                came = np.full(N, np.nan, np.float32)
                group.shift(contribution(WORLD.rank), came, by=1, channel=ch).wait()
                before = everyone[(WORLD.rank - 1) % RANKS].astype(half).astype(np.float32)
                report["shift"] = bool(np.array_equal(came, before))
                swapped = np.full(N, np.nan, np.float32)
                counts = [N // RANKS] * RANKS
                group.all_to_all(contribution(WORLD.rank), swapped, (counts, counts), channel=ch).wait()
                size = N // RANKS
                parts = [x[WORLD.rank * size : (WORLD.rank + 1) * size] for x in everyone]
                parts = [x if r == WORLD.rank else x.astype(half).astype(np.float32) for r, x in enumerate(parts)]
                report["all_to_all"] = bool(np.array_equal(swapped, np.concatenate(parts)))
                yield report


def reductions() -> Iterator[dict[str, Any]]:
    """Test reductions whose sums are rounded at other points of the computation.

    The sums are computed by the MPI library, or, within a node, without the codec.
    """
    everyone = [contribution(rank) for rank in range(RANKS)]
    exact = np.sum(everyone, axis=0, dtype=np.float64)
    magnitudes = np.sum(np.abs(everyone), axis=0, dtype=np.float64)
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    for name, half in HALF.items():
        for algorithm in (Algorithm.NATIVE, Algorithm.HIERARCHICAL, Algorithm.RING):
            for fault in (False, True) if algorithm is Algorithm.HIERARCHICAL else (False,):
                forgotten = patch.object(HostMemory, "round_in_place", lambda self, values: None)
                reduced = contribution(WORLD.rank)
                ch = channel("none" if algorithm is Algorithm.NATIVE else "int8:256", name, algorithm)
                ch = channel("mpc", name, algorithm) if algorithm is Algorithm.RING else ch
                with forgotten if fault else nullcontext():
                    group.all_reduce(reduced, channel=ch).wait()
                piece = cut_evenly(N, RANKS)[WORLD.rank]
                scattered = np.full(count_elements(piece), np.nan, np.float32)
                group.reduce_scatter(contribution(WORLD.rank), scattered, channel=ch).wait()
                bound = UNIT[name] * 2 * RANKS * magnitudes
                counters = ch.counters
                yield {
                    "dtype": name,
                    "algorithm": algorithm.value,
                    "fault": fault,
                    "all_reduce": float((np.abs(reduced - exact) / bound).max()),
                    "reduce_scatter": float((np.abs(scattered - exact[piece]) / bound[piece]).max()),
                    "replicas": digests_equal(reduced),
                    "rounded": bool(np.array_equal(reduced, reduced.astype(half).astype(np.float32))),
                    "ways": counters.algorithms,
                    "bytes": [counters.message_bytes, counters.wire_bytes, counters.coded_bytes],
                    "plain_calls": counters.plain_calls,
                    "error": (counters.error_square / counters.sampled_square) ** 0.5 if counters.sampled_square else 0,
                }


def many_sums() -> dict[str, Any]:
    """Run MPI reductions in the background. Each consists of a reduce-scatter and an all-gather."""
    group, ch = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY, background=True)), channel("none", "bf16", Algorithm.NATIVE)
    rng = np.random.default_rng(WORLD.rank)
    sizes = [20_000, 300_000, 17_000, 90_000, 40]
    buffers = [rng.integers(-8, 9, n).astype(np.float32) for n in sizes]
    works = [group.all_reduce(buffer, channel=ch).in_background() for buffer in buffers]
    for work in works:
        work.wait()
    draws = [np.random.default_rng(rank) for rank in range(RANKS)]
    wanted = [np.sum([rng.integers(-8, 9, n) for rng in draws], axis=0) for n in sizes]
    return {"right": all(np.array_equal(a, b) for a, b in zip(buffers, wanted, strict=True))}


def residuals() -> dict[str, Any]:
    """Check that the mean of many half-precision sums converges, because rounding errors are kept in residuals."""
    group, errors = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY)), []
    exact = np.sum([contribution(rank) for rank in range(RANKS)], axis=0, dtype=np.float64)
    for feedback in (Feedback(N), None):
        total, ch = np.zeros(N), channel("none", "bf16", Algorithm.TWO_SHOT)
        for _ in range(40):
            values = contribution(WORLD.rank)
            group.all_reduce(values, channel=ch, feedback=feedback).wait()
            total += values
        errors.append(float(np.linalg.norm(total / 40 - exact) / np.linalg.norm(exact)))
    return {"with": errors[0], "without": errors[1]}


def overflowing() -> dict[str, Any]:
    """Check that a value beyond the fp16 range becomes infinite on all ranks."""
    group, values = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY)), contribution(WORLD.rank)
    values[7] = 1e6 if WORLD.rank == 2 else 0
    group.all_reduce(values, channel=channel("none", "fp16")).wait()
    return {"infinite": bool(np.isinf(values[7])), "others": bool(np.isfinite(np.delete(values, 7)).all())}


# ---------------------------------------------------------------- training


def messages(name: str) -> CommPrecision:
    return CommPrecision(activations=name, gradients=name, parameters=name)


def run(model: str, layout: Layout, scheme: NamedScheme | None = None, **settings: Any) -> Run:
    plain = run_of(model, layout)
    train = plain.train.changed(**{"global_batch": 8, "micro_batch": 2, "precision": "fp32", **settings})
    return plain.changed(train=train, scheme=scheme or plain.scheme)


def make_trainer(a_run: Run) -> Trainer:
    return Trainer(a_run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=a_run.train.overlap), CORPUS)


def message_bytes(trainer: Trainer) -> dict[str, int]:
    rows = trainer.traffic.report()
    sent = {f"{row.dimension} {row.phase} {row.kind}": row.message_bytes for row in rows}
    return {name: nbytes for name, nbytes in sent.items() if nbytes}


def predicted(trainer: Trainer) -> dict[str, int]:
    """Return the predicted bytes of two steps by traffic."""
    a_run = trainer.run
    step = volume.count_all_ranks_bytes(a_run.model, a_run.train, a_run.layout)
    return {" ".join(key): 2 * nbytes for key, nbytes in step.items()}


def training() -> Iterator[dict[str, Any]]:
    """Check training with half-precision messages: half the bytes, nearly the same loss, and identical replicas."""
    identity = NamedScheme(name="identity", algorithm="two-shot", default="none")
    for model, layout in (("neox", Layout(dp=2, tp=2)), ("gpt2", Layout(dp=2, pp=2))):
        runs = [make_trainer(run(model, layout, identity))]
        runs += [make_trainer(run(model, layout, comm_precision=messages(name))) for name in ("fp32", "bf16", "fp16")]
        losses = [[trainer.step(k).loss for k in range(2)] for trainer in runs]
        yield {
            "model": model,
            "losses": losses,
            "bytes": [message_bytes(trainer) for trainer in runs],
            "predicted": [predicted(trainer) for trainer in runs],
            "algorithms": [
                trainer.policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD).algorithm for trainer in runs
            ],
            "agree": [replicas_agree(trainer) for trainer in runs],
        }


def squeezed() -> dict[str, Any]:
    """Check that MPC receives 16-bit values in a bf16 run, without zero padding."""
    scheme, seen = NamedScheme(name="naive-mpc", algorithm="two-shot", default="mpc"), []
    wide = run("neox", Layout(dp=2, tp=2), scheme, precision="bf16", zero=0, bucket_mb=4.0)
    trainer = make_trainer(wide.changed(model=wide.model.changed(hidden=256)))
    kind = type(get_codec("mpc"))
    encode = kind.encode

    def recorded(self: Any, x: Array, out: Bytes, **how: Any) -> int:
        seen.append(np.array(x))
        return encode(self, x, out, **how)

    with patch.object(kind, "encode", recorded):
        trainer.step(0)
    values = np.concatenate(seen)
    wire = np.empty(get_codec("mpc").wire_bytes(values.size, values.dtype), np.uint8)
    rows = [row for row in trainer.traffic.report() if row.dimension != "EXACT"]
    sent, on_wire, coded = (
        sum(getattr(row, key) for row in rows) for key in ("message_bytes", "wire_bytes", "coded_bytes")
    )
    predicted = volume.count_all_ranks_bytes(trainer.run.model, trainer.run.train, trainer.run.layout)
    return {
        "ratio": on_wire / sent,
        "alone": get_codec("mpc").encode(values, wire) / values.nbytes,
        "dtype": values.dtype.name,
        "coded": coded / sent,
        "forward": [row.message_bytes for row in rows if (row.dimension, row.phase) == ("TP", "FORWARD")],
        "predicted": [predicted["TP", "FORWARD", "ACT"]],
    }


def reduce_small_gradients(trainer: Trainer) -> None:
    """Reduce gradients of 2^-28, which are 2^-16 with the loss scale of 2^12."""
    engine = trainer.data_parallel
    engine.begin(micro_batches=1, loss_scale=trainer._scale.value)
    for piece in engine.pieces:
        piece.bucket.gradients.fill_(2.0**-16)
        piece.to_come = 0
    engine.reduce_gradients()


def small_gradients() -> dict[str, Any]:
    """Check that small gradients survive in fp16 messages, because the loss scale is still applied."""
    gradients = []
    for name, fault in (("fp32", nullcontext), ("auto", nullcontext), ("auto", scale_off_too_early)):
        with fault():
            how: dict[str, Any] = {"precision": "fp16", "comm_precision": messages(name), "zero": 0}
            trainer = make_trainer(run("neox", Layout(dp=4), **how))
            engine = trainer.data_parallel
            reduce_small_gradients(trainer)
        gradients.append(float(engine.pieces[0].gradient[0]))
    return {"gradients": gradients}


def tied_copies() -> dict[str, Any]:
    """Check that small gradients of a tied weight are summed, and that drift of the last stage's copy is detected."""
    trainer = make_trainer(run("gpt2", Layout(dp=2, pp=2), precision="fp16", zero=0))
    engine = trainer.data_parallel
    reduce_small_gradients(trainer)
    tied = [piece for piece in engine.pieces if piece.bucket.tied]
    before = replicas_agree(trainer)
    if trainer.mesh.last_stage:
        tied[0].bucket.values[0] += 1
    return {"gradients": [float(piece.gradient[0]) for piece in tied], "agree": [before, replicas_agree(trainer)]}


def masters() -> Iterator[dict[str, Any]]:
    """Check that bf16 weights are the rounded fp32 master weights on every rank.

    Results must not change if parameters are sent in bf16.
    """
    for zero in (0, 1):
        weights = []
        for name in ("fp32", "bf16"):
            # both runs sum gradients in fp32; only parameters are sent in bf16
            how: dict[str, Any] = {"precision": "bf16", "comm_precision": messages("fp32").changed(parameters=name)}
            trainer = make_trainer(run("neox", Layout(dp=4), zero=zero, **how))
            for k in range(2):
                trainer.step(k)
            weights.append([piece.bucket.values.clone() for piece in trainer.data_parallel.pieces])
            full = [
                np.concatenate(WORLD.allgather(piece.master.numpy())) if zero else piece.master.numpy()
                for piece in trainer.data_parallel.pieces
            ]
            rounded = all(
                torch.equal(torch.from_numpy(master).to(torch.bfloat16), values)
                for master, values in zip(full, weights[-1], strict=True)
            )
            finer = any(not np.array_equal(master, master.astype(BFLOAT16).astype(np.float32)) for master in full)
            yield {"zero": zero, "comm": name, "rounded": rounded, "finer": finer}
        same = all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
        yield {"zero": zero, "comm": "both", "same": same}


# ---------------------------------------------------------------- overflows that a codec hides


class Clamp(Identity):
    """A codec that clamps all values to the finite range."""

    name = "clamp"
    lossless = False
    carries_overflow = False

    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        return super().encode(np.nan_to_num(x, nan=0.0, posinf=1.0, neginf=-1.0), out, residual=residual, seed=seed)


def codec_of(name: str) -> Codec:
    return Clamp() if name == "clamp" else get_codec(name)


def hidden() -> Iterator[dict[str, Any]]:
    """Check that an infinity in a gradient or between stages is detected although the codec clamps it."""
    for dimension, layout in (("DP", Layout(dp=4)), ("PP", Layout(dp=2, pp=2))):
        for fault in (False, True):
            scheme = NamedScheme(
                name="clamp",
                algorithm="two-shot",
                default="none",
                rules=[Rule.model_construct(dimension=dimension, codec="clamp")],
            )
            with patch.object(policy, "get_codec", codec_of), patch("hpcbench.comm.channel.get_codec", codec_of):
                trainer = make_trainer(run("neox", layout, scheme, precision="fp16", zero=0, overlap=False))
                trainer.step(0)
                before = parity.parameters(trainer)
                with overflow_not_told() if fault else nullcontext(), poisoned(dimension, trainer):
                    result = trainer.step(1)
                same = all(
                    np.array_equal(a.values, b.values) for a, b in zip(before, parity.parameters(trainer), strict=True)
                )
                trainer.step(2)
            yield {
                "dimension": dimension,
                "fault": fault,
                "skipped": result.skipped,
                "same": same,
                "count": trainer.skipped,
            }


def poisoned(dimension: str, trainer: Trainer) -> Any:
    """Plant an infinity on one rank immediately before the value is sent."""
    if dimension == "DP":
        engine = trainer.data_parallel
        reduce = engine.reduce_gradients

        def faulty() -> None:
            if WORLD.rank == 3:
                # the last bucket's second piece belongs to another rank, so it must be sent
                gradients = engine.pieces[-1].bucket.gradients
                gradients[gradients.numel() // 4 + 1] = torch.inf
            reduce()

        return patch.object(engine, "reduce_gradients", faulty)
    send = Pipeline._send

    def sending(self: Pipeline, x: torch.Tensor, *where: int, forward: bool) -> object:
        if not forward and trainer.mesh.dp.rank == 1:
            x = x.clone()
            x.view(-1)[5] = torch.inf
        return send(self, x, *where, forward=forward)

    return patch.object(Pipeline, "_send", sending)


# ---------------------------------------------------------------- planted faults


def scale_off_too_early() -> Any:
    """Gradients are divided by the loss scale before they are rounded to fp16."""
    begin = Gradients.begin

    def faulty(self: Gradients, **how: Any) -> None:
        begin(self, **how)
        self._scaled_messages = False

    return patch.object(Gradients, "begin", faulty)


def overflow_not_told() -> Any:
    """The sender does not report that its codec clamped an infinity."""
    return patch.object(policy.Policy, "lost_overflows", PropertyMock(return_value=0))


FAULTS = scale_off_too_early, overflow_not_told


def everything() -> None:
    cases = (operations, reductions, many_sums, residuals, overflowing, training, squeezed)
    for case in (*cases, small_gradients, tied_copies, masters, hidden):
        answers = case()
        for answer in [answers] if isinstance(answers, dict) else answers:
            for each in WORLD.gather({"case": case.__name__, **answer}) or []:
                print(json.dumps(each), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
