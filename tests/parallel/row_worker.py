"""Worker that trains small models whose embedding gradients are sent as rows. The worker prints one JSON line per
case."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import cases
import numpy as np
import parity_worker
import row_cases
import torch
from counted_calls import SentRows, count_counted_bytes
from mpi4py import MPI
from parity_worker import History
from row_cases import SPARSE
from row_faults import PLANTS

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.events import SparseSwitch
from hpcbench.contract.run import Run
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.sparse import measure
from hpcbench.parallel.sparse.reduction import ByRows
from hpcbench.train.trainer import Trainer

STEPS = 1
"""Number of steps. `conserved` runs more steps."""
Step = list[list[int]]
"""Distinct tokens of each reduction in a step."""
KNOWN: dict[str, list[list[Step]]] = {}
"""Steps of each rank by run (only on rank 0)."""


@contextmanager
def noting_tokens(run: Run, steps: list[Step]) -> Iterator[None]:
    """Record the tokens of each reduction of the embedding gradient, taken from the batches."""
    passes = Trainer._passes

    def noted(self: Trainer, step: int, batches: list[Any]) -> list[float]:
        each = [sorted(set(batch.inputs.flatten().tolist())) for batch in batches]
        steps.append(each if run.train.zero >= 2 else [sorted(set().union(*each))])
        return passes(self, step, batches)

    with patch.object(Trainer, "_passes", noted):
        yield


def train(run: Run, comm: MPI.Comm, steps: int) -> History | None:
    """Train like the worker of the parity tests, and record tokens."""
    records: list[Step] = []
    with noting_tokens(run, records):
        history = plain_train(run, comm, steps)
    everyones = comm.gather(records)
    if everyones:
        KNOWN[run.model_dump_json()] = everyones
    return history


def sent_rows(run: Run, tokens: list[list[int]], replica: int, place: int) -> SentRows:
    """Return what a replica sends in one reduction, computed from the tokens of all replicas."""
    train, p, h = run.train, run.layout.replicas, run.model.hidden
    held = cut_evenly(run.model.vocab, run.layout.tp)[place]
    touched = [[token - held.start for token in each if held.start <= token < held.stop] for each in tokens]
    values = (held.stop - held.start) * h
    values += -values % (16 * p)
    rules = [rule for rule in run.scheme.all_rules if rule.dimension in (None, "DP")]
    gathered = not train.zero or rules[-1].feedback
    if gathered:
        leaving = [(p - 1) * len(each) for each in touched]
    else:
        piece = values // p

        def owners(row: int) -> set[int]:
            return {row * h // piece, (row * h + h - 1) // piece}

        leaving = [sum(len(owners(row) - {owner}) for row in each) for owner, each in enumerate(touched)]
    if train.sparse_gradients == "auto":
        codec, dtype = get_codec(rules[-1].codec), np.dtype("f8" if train.precision == "fp64" else "f4")
        nbytes = codec.wire_bytes(values, dtype) if codec.fixed_size else values * dtype.itemsize
        table_bytes = (p - 1) * nbytes * (1 if train.zero else 2)
        if sum(leaving) * (4 + h * nbytes / values) >= table_bytes:
            return SentRows(0, 0, gathered)
    return SentRows(leaving[replica], 1, gathered)


def predicted(run: Run, steps: int) -> list[dict[str, int]]:
    """Compute the expected bytes by rank and channel from the settings and the tokens."""
    layout, touched, predictions = run.layout, KNOWN[run.model_dump_json()], []
    for rank in range(run.ranks):
        stage, replica, place = layout.coordinates(rank)
        total = Counter[str]()
        for step in range(steps):
            group = [(stage * layout.replicas + other) * layout.tp + place for other in range(layout.replicas)]
            reductions = zip(*(touched[other][step] for other in group), strict=True)
            each = [sent_rows(run, list(tokens), replica, place) for tokens in reductions]
            rows = SentRows(
                sum(row_count.left for row_count in each),
                sum(row_count.reductions for row_count in each),
                each[0].gathered,
            )
            by_channel = count_counted_bytes(run.model, run.train, layout, rank, rows=rows)
            total.update({" ".join(key): nbytes for key, nbytes in by_channel.items()})
        predictions.append(dict(+total))
    return predictions


plain_train = parity_worker.train


def conserved() -> None:
    """Check that received values and residuals add up to all gradients in a few steps of top-k with error feedback."""
    start = ByRows.start
    for zero in (0, 1):
        settings = {**row_cases.FOUR, "scheme": "top-feedback", "train.precision": "fp32", "train.zero": zero}
        run = cases.run_of({**settings, row_cases.SPARSE: "always"})
        parity_worker.meet(parity_worker.WORLD)
        comm = parity_worker.WORLD.Split(int(parity_worker.WORLD.rank >= run.ranks), parity_worker.WORLD.rank)
        if parity_worker.WORLD.rank >= run.ranks:
            continue
        trainer = parity_worker.make_trainer(run, comm)
        (piece,) = (piece for piece in trainer.data_parallel.pieces if piece.bucket.by_rows)
        local_sum = torch.zeros(piece.bucket.values.numel())
        arrived = torch.zeros_like(local_sum)

        def noted(
            self: ByRows, piece: Any, gradients: torch.Tensor, divisor: float, local_sum: torch.Tensor = local_sum
        ) -> Any:
            local_sum += gradients / divisor
            return start(self, piece, gradients, divisor)

        tokens: list[Step] = []
        with patch.object(ByRows, "start", noted), noting_tokens(run, tokens):
            for step in range(3):
                trainer.backward(step)
                arrived[piece.owned] += piece.gradient
        if zero == 0 and comm.rank:
            arrived.zero_()
        residuals = torch.from_numpy(piece.feedback.sent) if piece.feedback else None
        assert isinstance(trainer.data_parallel, DataParallel) and residuals is not None
        sums = [comm.allreduce(each.numpy().astype(np.float64)) for each in (local_sum, arrived, residuals)]
        if comm.rank == 0:
            total, sent, residual = (float(np.linalg.norm(each)) for each in sums)
            lost = float(np.linalg.norm(sums[0] - sums[1] - sums[2]))
            print(json.dumps({"conserved": zero, "parts": [total, sent, residual], "lost": lost}), flush=True)
        report, touched = (
            trainer.rows.report(trainer.policy.exact),
            comm.allreduce(sum(len(step[0]) for step in tokens)),
        )
        if comm.rank == 0:
            print(json.dumps({"said": report, "touched": touched / (3 * run.ranks * run.model.vocab)}), flush=True)


def planted_times(kind: str, rank: int) -> list[float]:
    """Return the times in seconds of sending the whole gradient, and of sending rows at each density.

    The values differ between ranks.
    """
    if kind == "rows quick":
        return [1.0 + rank, 0.1, 0.2, 0.3, 0.4]
    if kind == "rows slow":
        return [1.0 - rank / 8, 2.0, 3.0, 4.0, 5.0 + rank]
    return [1.0 - rank / 8, 0.1, 0.2, 0.4 * (1 + rank), 2.0]


TIMED: tuple[tuple[str, int, str | None, row_cases.Case], ...] = (
    ("planted", 0, None, {}),
    ("planted", 1, None, {}),
    ("planted", 0, "decides_by_its_own_times", {}),
    ("rows quick", 1, None, {**row_cases.SHORT, "train.seq_len": 128}),  # 48 bytes contain too few distinct tokens
    ("rows slow", 1, None, {}),
)


def switched() -> None:
    """Print the ranks' switch points and choices if their measured times differ, and those of a real measurement."""
    comm = parity_worker.WORLD.Split(int(parity_worker.WORLD.rank >= 4), parity_worker.WORLD.rank)
    if parity_worker.WORLD.rank >= 4:
        return
    for times, stage, fault, more in TIMED:
        run = cases.run_of(
            {**row_cases.FOUR, "train.precision": "fp32", "train.zero": stage, **more, SPARSE: "measured"}
        )
        with ExitStack() as patches:
            patches.enter_context(patch.object(measure, "own_times", lambda *_, t=times: planted_times(t, comm.rank)))
            if fault:
                patches.enter_context(PLANTS[fault]())
            trainer = parity_worker.make_trainer(run, comm)
        tell_each(comm, times, stage, fault, trainer)
    of_residuals: row_cases.Case = {"scheme": "top-feedback", "train.precision": "fp32", "train.zero": 0}
    run = cases.run_of({**row_cases.FOUR, **of_residuals, SPARSE: "measured"})
    trainer = parity_worker.make_trainer(run, comm)
    switch = trainer.rows.switch
    assert switch is not None
    residuals = [float(residual["sent"].abs().max()) for residual in trainer.data_parallel.residuals().values()]
    calls = [channel.counters.calls for channel in trainer.policy.channels if channel.counters.calls]
    if comm.rank == 0:
        line = SparseSwitch(**switch._asdict()).to_line()
        print(json.dumps({"real": line, "calls": calls, "residuals": max(residuals)}), flush=True)


def tell_each(comm: MPI.Comm, times: str, stage: int, fault: str | None, trainer: Trainer) -> None:
    """Print each rank's switch point, its choice at several densities, and its choice in a step."""
    by_rows, switch = trainer.data_parallel.by_rows, trainer.rows.switch
    assert by_rows and switch
    (piece,) = (piece for piece in trainer.data_parallel.pieces if piece.bucket.by_rows)
    ways = by_rows.ways(piece)
    touched = range(0, ways.rows + 1, 4)
    counts = [[[count] if ways.gathered else [count // 4] * 4] * 4 for count in touched]
    fields: dict[str, Any] = {
        "switch": switch._asdict(),
        "densities": [ways.density(each) for each in counts],
        "went": [by_rows.goes_by_rows(ways, each) for each in counts],
    }
    if times != "planted":
        seen: list[bool] = []
        goes = ByRows.goes_by_rows

        def noted(self: ByRows, ways: Any, counts: Any) -> bool:
            seen.append(ways.shorter_by_rows(counts))
            return goes(self, ways, counts)

        with patch.object(ByRows, "goes_by_rows", noted):
            trainer.backward(0)
        fields |= {"by_rows": by_rows.taken.by_rows, "shorter": seen[0]}
    parity_worker.meet(comm)
    for rank, each in enumerate(comm.gather(fields) or []):
        print(json.dumps({"rank": rank, "times": times, "stage": stage, "fault": fault, **each}), flush=True)


GATHERED = (
    ("none", "native", None),
    ("none", "auto", None),
    ("none", "native", "f2"),
    ("none", "two-shot", "f2"),
    ("mpc", "two-shot", None),
    ("int8:256", "auto", None),
)
"""Codec and algorithm of a channel, and the dtype in which values are sent."""


def gathered() -> None:
    """Gather parts of different lengths, some of them empty, on all ranks."""
    group = Group(parity_worker.WORLD.Split(0, parity_worker.WORLD.rank), Progress(Wait.GIVE_WAY))
    counts = [0, 1000, 3, 0, 17, 4096, 1, 250]
    values = np.random.default_rng(group.rank).standard_normal(counts[group.rank]).astype("f4")
    for codec, algorithm, dtype in GATHERED:
        travels = None if dtype is None else np.dtype(dtype)
        of = Dimension.DP, Phase.BACKWARD, MessageKind.GRAD
        channel = Channel(*of, get_codec(codec), Algorithm(algorithm), dtype=travels)
        joined = np.full(sum(counts), np.nan, "f4")
        group.all_gather_counts(values, joined, counts, channel=channel).wait()
        parity_worker.meet(parity_worker.WORLD)
        exact = np.concatenate(parity_worker.WORLD.allgather(values))
        sent = channel.counters.message_bytes == 7 * values.size * (2 if dtype else 4)
        answers = parity_worker.WORLD.gather((joined.tobytes(), sent))
        if answers:
            error = float(np.abs(joined - exact).max())
            fields = {"codec": codec, "algorithm": algorithm, "dtype": dtype, "error": error}
            alike = len({answer[0] for answer in answers}) == 1
            print(json.dumps({"gathered": fields, "alike": alike, "sent": all(answer[1] for answer in answers)}))


def main(part: str = "") -> None:
    """Run all scenarios, or the remaining cases, with a single start of the ranks, which takes seconds."""
    comparisons = [comparison for suite in row_cases.SUITES[part] for comparison in suite()]
    assert len({comparison.name for comparison in comparisons}) == len(comparisons)
    with ExitStack() as patches:
        for name, value in (("PLANTS", PLANTS), ("train", train), ("predicted", predicted)):
            patches.enter_context(patch.object(parity_worker, name, value))
        parity_worker.compare_all(comparisons, STEPS)
    if part:
        return
    conserved()
    switched()
    gathered()


if __name__ == "__main__":
    main(*sys.argv[1:])
