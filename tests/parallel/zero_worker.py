"""Worker that compares the ZeRO stages with each other and with one process. The worker prints one JSON line per
case."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import shared_text
from cases import FEWER_STEPS
from faults import divided_twice, own_piece_exact
from mpi4py import MPI
from parity import meet
from parity_worker import WORLD, errors, train
from published_zero import count_link_bytes
from runs import SCHEMES, label, run_of
from torch import Tensor

from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Phase
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.exact import digest
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.offload import Crossing, HostLink
from hpcbench.parallel.on_demand import OnDemand, Unit
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.sharding import Shard
from hpcbench.predict import volume
from hpcbench.predict import zero as predict
from hpcbench.study.presets import scheme as preset
from hpcbench.train.trainer import Trainer

CORPUS = shared_text.corpus()
PER_NODE = 2
WHOLE = Layout(dp=2, tp=2, pp=2)


def case(model: str, layout: Layout, zero: int, *, scheme: str = "identity", parts: int = 1, **train: Any) -> Run:
    """Return a run with `parts` micro-batches per step."""
    precision = train.pop("precision", "fp64")
    run = run_of(model, layout, scheme=scheme, zero=zero, clip=0.0, precision=precision)
    return run.changed(
        model=run.model.changed(layers=2),  # one layer per stage
        train=run.train.changed(global_batch=8, micro_batch=8 // layout.dp // parts, **{"bucket_mb": 0.1, **train}),
    )


def gather(answer: Any) -> list[Any]:
    """Gather the ranks' results on rank 0."""
    meet(WORLD)
    return WORLD.gather(answer) or []


def split(run: Run) -> MPI.Comm | None:
    """Return the communicator of the first ranks of the world."""
    meet(WORLD)
    comm = WORLD.Split(0 if WORLD.rank < run.ranks else 1, WORLD.rank)
    return comm if WORLD.rank < run.ranks else None


def spread(run: Run) -> list[dict[str, object]] | None:
    """Train on the first ranks of the world."""
    comm = split(run)
    return train(run, comm, FEWER_STEPS) if comm else None


def say(run: Run, history: Any, reference: Any, **fields: Any) -> None:
    if WORLD.rank == 0:
        differences = errors(history, reference)
        print(json.dumps({"layout": label(run.layout), "zero": run.train.zero, **fields, **differences}), flush=True)


@contextmanager
def nodes() -> Iterator[None]:
    """Emulate nodes of two ranks each."""

    def of(comm: MPI.Comm) -> Topology:
        return Topology.by_label(comm.allgather(WORLD.rank // PER_NODE))

    with patch.object(Topology, "of", of):
        yield


FEW_PLACES = (("neox", Layout(dp=4)), ("gpt2", WHOLE))
MORE_PLACES = (
    ("gpt2", Layout(dp=2)),
    ("neox", Layout(dp=8)),
    ("neox", Layout(dp=2, tp=2)),
    ("gpt2", Layout(dp=2, pp=2)),
)
"""Settings of `make test-long`."""


def stages(places: Sequence[tuple[str, Layout]] = FEW_PLACES) -> None:
    """Compare every stage with stage 0, with one micro-batch.

    The summation order is the same, so results are identical.
    """
    for model, layout in places:
        reference = spread(case(model, layout, 0))
        for zero in (1, 2, 3):
            run = case(model, layout, zero)
            say(run, spread(run), reference, test="stages", model=model)


def accumulated() -> None:
    """Compare with one process: accumulation over several micro-batches, and clipping by the global norm."""
    for model in ("neox", "gpt2"):
        reference = train(case(model, Layout(), 1, clip=0.5), MPI.COMM_SELF, FEWER_STEPS) if WORLD.rank == 0 else None
        for zero in (1, 2, 3):
            run = case(model, WHOLE, zero, scheme="baseline", parts=4, clip=0.5)
            say(run, spread(run), reference, test="accumulated", model=model)


def variants() -> None:
    """Run variants that must be bitwise identical: offload, node copies, no overlap, other bucket sizes."""
    layout = Layout(dp=4)
    with nodes():
        for zero in (1, 2, 3):
            reference = spread(case("gpt2", layout, zero))
            changes: list[dict[str, Any]] = [{"offload": True}, {"overlap": False}, {"bucket_mb": 1e-6}]
            if zero == 3:
                changes += [{"node_copy": True}, {"node_copy": True, "offload": True, "overlap": False}]
            for change in changes:
                run = case("gpt2", layout, zero, **change)
                say(run, spread(run), reference, test="variants", change=change)


def counted() -> None:
    """Print, on each rank, the messages of a step, the states after the step, and the predictions of both."""
    copied = {"node_copy": True, "offload": True, "precision": "bf16", "scheme": "identity"}
    for layout, zero, parts, more in (
        *((WHOLE, zero, 2, {}) for zero in (0, 1, 2, 3)),
        (Layout(dp=4), 3, 2, {}),
        (Layout(dp=4), 3, 1, copied),
        (Layout(dp=4), 2, 2, {"offload": True, "precision": "bf16"}),
        (Layout(dp=4), 1, 2, {"offload": True, "precision": "fp32"}),
        (Layout(dp=4), 2, 2, {"bucket_mb": 1e-6}),
        (Layout(dp=4), 0, 2, {"precision": "bf16"}),
    ):
        run = case("gpt2", layout, zero, parts=parts, **{"scheme": "baseline", **more})
        answer = None
        if comm := split(run):
            with nodes():
                answer = measure(run, comm, parts)
        for rank, each in enumerate(gather(answer)):
            if each:
                what = {"layout": label(layout), "zero": zero, "parts": parts, "more": more}
                print(json.dumps({"test": "counted", **what, "rank": rank, **each}), flush=True)


def measure(run: Run, comm: MPI.Comm, parts: int) -> dict[str, Any]:
    trainer = Trainer(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), CORPUS)
    trainer.traffic.begin()
    trainer.backward(0)
    trainer.update(0)
    trainer.traffic.end(0.0)
    data = trainer.data_parallel
    lengths = [piece.bucket.values.numel() for piece in data.pieces]
    parameter = data.pieces[0].bucket.values.itemsize
    master = wire_dtype(data.pieces[0].bucket.values.dtype).itemsize
    node = PER_NODE if run.train.node_copy else None
    ranks, zero = run.layout.dp, run.train.zero
    expected = volume.count_step_bytes(run.model, run.train, run.layout, comm.rank, node_ranks=node)
    sent = {(c.dimension.value, c.phase.value, c.kind.value): c.counters for c in trainer.policy.channels}
    counted = {key: counters.message_bytes for key, counters in sent.items() if counters.message_bytes}
    link = [data.link.down_bytes, data.link.up_bytes] if data.link else None
    down, up = count_link_bytes(zero, lengths, ranks, master=master, micro_batches=parts)
    first = up if zero == 3 else 0  # the weights that the first forward pass gathers
    gathered = [sent.get(("ZERO", phase, "PARAM")) for phase in ("FORWARD", "BACKWARD")]
    return {
        "messages": [{" ".join(key): nbytes for key, nbytes in each.items()} for each in (counted, expected)],
        "held": [
            data.held_bytes(),
            predict.count_state_bytes(
                zero, lengths, ranks, parameter=parameter, master=master, offload=run.train.offload, node_ranks=node
            ),
        ],
        "padding": sum(lengths) - sum(parameter.numel() for parameter, _ in trainer.held),
        "buckets": len(lengths),
        "link": [link, [down, up + first]],
        "crossed": [list(trainer.traffic.link_bytes() or ()), [down, up]],
        "owned": sum(owned.length for owned in data.owned),
        "parameters": sum(parameter.numel() for parameter, _ in trainer.held),
        "between_nodes": [counters.network_bytes for counters in gathered if counters],
        "calls": sent["DP", "BACKWARD", "GRAD"].calls,
    }


def resumed() -> None:
    """Compare three uninterrupted steps with two steps, a saved state, and a third step by another trainer.

    The runs cover residuals, copies and offload.
    """
    for zero, more in ((2, {}), (3, {}), (3, {"node_copy": True, "offload": True})):
        run = case("gpt2", WHOLE, zero, scheme="sign-feedback", parts=2, precision="fp32", **more)
        trainers = [Trainer(run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=True), CORPUS) for _ in range(2)]
        for step in range(2):
            trainers[0].step(step)
        exact = trainers[0].policy.exact.counters
        before = exact.calls
        state = trainers[0].state()
        gathers = exact.calls - before
        trainers[1].load(state)
        digests = []
        for trainer in trainers:
            trainer.step(2)
            state = trainer.state()
            tensors = [each["values"] for each in state["parameters"].values()]
            tensors += [each[key] for each in state["optimizer"].values() for key in ("master", "first", "second")]
            tensors += [values for each in state["residuals"].values() for values in each.values()]
            digests.append(digest(tensors))
        answers = gather(digests)
        if answers:
            same = all(first == second for first, second in answers)
            print(
                json.dumps({"test": "resumed", "zero": zero, "more": more, "same": same, "gathers": gathers}),
                flush=True,
            )


def lossy() -> None:
    """Check ZeRO++: every rank must compute with the same decoded bytes.

    The check fails if a rank keeps its own exact bytes.
    """
    named_scheme = preset("zeropp")
    rules = [Rule(**{"dimension": None, "phase": None, "kind": None, **rule}) for rule in named_scheme["rules"]]
    scheme = NamedScheme(
        name="zeropp", algorithm=named_scheme["algorithm"], default=named_scheme["default"], rules=rules
    )
    with patch.dict(SCHEMES, zeropp=scheme), nodes():
        exact = spread(case("gpt2", Layout(dp=4), 3, precision="fp32"))
        for fault in (None, own_piece_exact):
            digests: list[int] = []
            with patch.object(Bucket, "fill_values", noting(digests)), fault() if fault else nullcontext():
                history = spread(case("gpt2", Layout(dp=4), 3, scheme="zeropp", precision="fp32", node_copy=True))
            everyone = gather(digests)
            alike = all(each == everyone[0] for each in everyone[:4])
            run = case("gpt2", Layout(dp=4), 3)
            say(run, history, exact, test="lossy", fault=fault is not None, alike=alike, uses=len(digests))


def noting(digests: list[int]) -> Callable[[Bucket, Tensor], None]:
    fill = Bucket.fill_values

    def noted(self: Bucket, values: Tensor) -> None:
        fill(self, values)
        digests.append(digest([values.clone()]))

    return noted


# ---------------------------------------------------------------- planted faults


def piece_not_gathered() -> object:
    """The last owner's piece is not gathered."""
    fill = Bucket.fill_values

    def faulty(self: Bucket, values: Tensor) -> None:
        values[values.numel() // 2 :] = 0
        fill(self, values)

    return patch.object(Bucket, "fill_values", faulty)


def stale_piece() -> object:
    """The gather after a step returns the previous weights."""
    give = OnDemand.give

    def faulty(self: OnDemand, piece: Piece, source: Tensor) -> None:
        give(self, piece, self._entries[id(piece)].source.clone())

    return patch.object(OnDemand, "give", faulty)


def counted_twice_in_norm() -> object:
    """Each rank of a tensor group adds replicated parameters to the norm. Both copies of a tied weight are added."""
    return patch.object(Shard, "counts_in_norm", True)


def reduced_too_early() -> object:
    """Stage 1 reduces gradients after the first micro-batch."""
    begin = Gradients.begin

    def faulty(self: Gradients, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=1, loss_scale=loss_scale)

    return patch.object(Gradients, "begin", faulty)


def overwritten() -> object:
    """The gradient sum of a micro-batch replaces the earlier sums."""
    finish = Gradients._finish

    def faulty(self: Gradients, piece: Piece) -> None:
        piece.gradient.zero_()
        finish(self, piece)

    return patch.object(Gradients, "_finish", faulty)


def freed_too_early() -> object:
    """A bucket's memory is overwritten before the backward pass has used it."""
    need = OnDemand._need

    def faulty(self: OnDemand, unit: Unit, phase: Phase) -> None:
        need(self, unit, phase)
        if phase is Phase.BACKWARD:
            for entry in unit.entries:
                entry.bucket.values.fill_(0.5)

    return patch.object(OnDemand, "_need", faulty)


def copy_not_refreshed() -> object:
    """The secondary copies on each node come from the first step."""
    give = OnDemand.give

    def faulty(self: OnDemand, piece: Piece, source: Tensor) -> None:
        entry = self._entries[id(piece)]
        fresh = entry.fresh
        give(self, piece, source)
        entry.fresh = fresh

    return patch.object(OnDemand, "give", faulty)


def crossing_not_waited_for() -> object:
    """Updated weights are used before they have been copied from the host."""
    up = HostLink.up

    def faulty(self: HostLink, x: Tensor) -> Crossing:
        crossing = up(self, x)
        return Crossing(x, crossing.result.zero_(), None)

    return patch.object(HostLink, "up", faulty)


FAULTS: dict[str, tuple[Callable[[], object], Run]] = {
    "piece_not_gathered": (piece_not_gathered, case("neox", Layout(dp=2), 3)),
    "stale_piece": (stale_piece, case("neox", Layout(dp=2), 3, offload=True)),
    "divided_twice": (divided_twice, case("neox", Layout(dp=2), 3)),
    "counted_twice_in_norm": (counted_twice_in_norm, case("gpt2", WHOLE, 3)),
    "reduced_too_early": (reduced_too_early, case("neox", Layout(dp=2), 1, parts=2)),
    "overwritten": (overwritten, case("neox", Layout(dp=2), 2, parts=2)),
    "freed_too_early": (freed_too_early, case("neox", Layout(dp=2), 3)),
    "copy_not_refreshed": (copy_not_refreshed, case("neox", Layout(dp=4), 3, node_copy=True)),
    "crossing_not_waited_for": (crossing_not_waited_for, case("neox", Layout(dp=2), 2, offload=True)),
}


def faults() -> None:
    sound: dict[str, Any] = {}
    with nodes():
        for name, (fault, run) in FAULTS.items():
            if str(run) not in sound:
                sound[str(run)] = spread(run)
            with fault():  # type: ignore[attr-defined]
                say(run, spread(run), sound[str(run)], test="faults", fault=name)


def remaining() -> None:
    """Run the scenarios of `make test-long`."""
    stages(MORE_PLACES)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("stages", "accumulated", "variants", "counted", "resumed", "lossy", "faults"):
        globals()[name]()
