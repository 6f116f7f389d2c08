"""Training with a parameter server that is distributed over the ranks. Each rank is a worker and serves a shard.

A run consists of rounds, which end before each evaluation or checkpoint and at the end of the warm-up. At the end of a
round, all pushes have been applied, so all ranks have the same version of the weights.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from hpcbench.comm.feedback import Feedback
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.contract.events import Staleness, StalenessOf
from hpcbench.contract.run import Run
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buffers import Buffer, from_buffer, to_buffer, to_tensor
from hpcbench.parallel.exact import everyones_counts, exact_sum
from hpcbench.parallel.server import ServerShard, Tickets, Update
from hpcbench.parallel.server_link import Residuals, Server, Worker
from hpcbench.train import clocks
from hpcbench.train.corpus import Corpus
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.step_result import StepResult
from hpcbench.train.trainer import Trainer

_REPORT = 3
"""Number of values in a report: contribution to the mean loss, message bytes, and wire bytes."""


class ServedTrainer(Trainer):
    """Trainer of one rank, with a worker and a shard of the parameter server.

    Attributes
    ----------
    server : Server
        Server of this rank's shard.
    worker : Worker
        Worker of this rank.
    serving : bool
        Whether the shard serves requests: True from the first round until `finish`.
    """

    def __init__(
        self, run: Run, comm: MPI.Comm, progress: Progress, corpus: Corpus, places: Places | None = None
    ) -> None:
        super().__init__(run, comm, progress, corpus, places)
        dp, train = self.mesh.dp, run.train
        self._pieces = self.data_parallel.pieces
        self._updates: deque[tuple[Update, float]] = deque()
        self._reported = (0, 0)
        self._began = self._began_update = 0.0
        self._from = 0
        bound = {"bsp": 0, "ssp": train.staleness}.get(train.sync)
        channels = {
            "push": self.policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD),
            "pull": self.policy.channel(Dimension.ZERO, Phase.STEP, MessageKind.PARAM),
            "exact": self._exact,
        }
        self.server = Server(
            dp,
            progress,
            shard=ServerShard(dp.size, bound, self._apply, self._on_update),
            tickets=Tickets(dp.size, shared=train.sync == "asp"),
            weights=lambda: [to_buffer(piece.master).copy() for piece in self._pieces],
            rooms=lambda: [to_buffer(torch.empty_like(piece.master)) for piece in self._pieces],
            report=_REPORT,
            **channels,
        )
        self.worker = Worker(dp, self.server, report=_REPORT, **channels)
        self._feedback = self._residuals() if channels["push"].feedback else None
        self.data_parallel.keep_gradients()
        self.serving = False
        self._began_clocks = [0] * dp.size

    def open(self, until: int) -> None:
        """Begin a round up to step `until`."""
        if not self.serving:
            self.server.start()
            self.serving = True
        self._began, self._from = time.perf_counter(), self.server.shard.updates
        self.traffic.begin()
        self.worker.round = until
        with self.server.lock:
            self.server.tickets.open(until)

    def read(self) -> bool:
        """Read the weights as soon as the clocks permit it. Return False if no work remains in the round."""
        size = self.mesh.dp.size
        gathered = [piece.bucket.room() for piece in self._pieces]
        into = [[room[cut_evenly(len(room), size)[rank]] for room in gathered] for rank in range(size)]
        if not self.worker.pull(into):
            return False
        for piece, room in zip(self._pieces, gathered, strict=True):
            piece.bucket.values.copy_(from_buffer(room, piece.bucket.values))
        return True

    def compute(self) -> float:
        """Compute the gradient of the batch for this worker's current clock. Return the mean loss of the batch."""
        batches = self._batches.train(self.worker.clock)
        self.data_parallel.begin(micro_batches=len(batches), loss_scale=1.0)
        losses = self._passes(self.worker.clock, batches)
        return sum(losses) / len(losses)

    def write(self, loss: float) -> None:
        """Push the gradient to all shards."""
        size = self.mesh.dp.size
        gradients = self.data_parallel.own_gradients(divisor=size)
        pieces = [[vector[cut_evenly(len(vector), size)[rank]] for vector in gradients] for rank in range(size)]
        self.worker.push(pieces, [loss / size, *self._new_bytes()], self._feedback)
        self.server.check()

    def turn(self) -> bool:
        """Read the weights, compute a gradient, and push it. Return False if no work remains in the round."""
        clock, phases = self.clock, self.phases
        begin = clock.mark()
        if not self.read():
            return False
        came = clock.mark()
        loss = self.compute()
        computed = clock.mark()
        self.write(loss)
        end = clock.mark()
        phases.count("bubble", begin, came)
        phases.count("reduction", computed, end)
        phases.count("step", begin, end)
        phases.steps += 1
        clock.settle()
        return True

    def close(self) -> int:
        """End the round after all pushes have been applied. Return the last step of the round."""
        until = self.worker.last_step
        self.worker.settle()
        self.server.wait(lambda: self.server.shard.updates >= until)
        exact_sum(self.mesh.world, [1.0], self._exact)
        self.server.hand_over()
        self.traffic.end(time.perf_counter() - self._began, steps=until - self._from)
        for piece in self._pieces:
            room = piece.bucket.room()
            self.mesh.dp.all_gather(to_buffer(piece.master), room, channel=self._exact).wait()
            piece.bucket.values.copy_(from_buffer(room, piece.bucket.values))
        return until

    def finish(self) -> None:
        """End the service. No worker may send requests after this call."""
        if self.serving:
            self.worker.end()
            self.server.finish()
            self.serving = False

    def results(self) -> list[StepResult]:
        """Return the new updates of the first shard as steps. The list is empty on other ranks."""
        results = []
        while self._updates:
            update, at = self._updates.popleft()
            loss, message, wire = update.report
            seconds, self._began_update = at - self._began_update, at
            results.append(
                StepResult(
                    loss,
                    seconds,
                    learning_rate(update.number - 1, self.run.train),
                    math.nan,
                    round(message),
                    round(wire),
                    skipped=False,
                    loss_scale=1.0,
                    stop=False,
                    diverged=None if math.isfinite(loss) else update.number,
                )
            )
        return results

    def end_early(self) -> None:
        """End the round after the steps that have already begun."""
        with self.server.lock:
            self.server.tickets.end_early()

    def staleness(self) -> Staleness:
        """Return the staleness of each shard's gradients (a collective call). All ranks return the same result."""
        counts = everyones_counts(self.mesh.dp, self.server.shard.staleness, self._exact)
        return Staleness(
            of="shard",
            places=tuple(
                StalenessOf(place=rank, counts={str(k): n for k, n in ages.items()}) for rank, ages in enumerate(counts)
            ),
        )

    def write_clocks(self, directory: Path) -> None:
        """Write the clocks recorded by this rank's shard (see `hpcbench.train.clocks`)."""
        clocks.write(
            directory,
            self.server.shard,
            place=self.mesh.dp.rank,
            sync=self.run.train.sync,
            began=self._began_clocks,
        )

    def state(self) -> dict[str, Any]:
        """Return the `Trainer.state` at the end of a round, including the clocks of the workers."""
        return super().state() | {"clocks": list(self.server.shard.clocks)}

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a `state` of this rank.

        Only BSP is bitwise reproducible, because SSP and ASP depend on timing.
        """
        super().load(state)
        shard, clocks = self.server.shard, list(state["clocks"])
        shard.clocks, shard.updates = list(clocks), self.data_parallel.updates
        self._began_clocks = list(clocks)
        self.server.tickets.given = list(clocks)
        self.worker.clock = clocks[self.mesh.dp.rank]

    def _apply(self, sums: Sequence[Buffer], updates: int) -> None:
        lr = learning_rate(updates, self.run.train)
        for piece, total in zip(self._pieces, sums, strict=True):
            piece.gradient.copy_(to_tensor(total))
            piece.gradient[max(piece.bucket.padding.start - piece.owned.start, 0) :] = 0
            piece.adam.step(piece.master, piece.gradient, lr=lr)

    def _on_update(self, update: Update) -> None:
        if self.mesh.dp.rank == 0:
            self._updates.append((update, time.perf_counter()))
            if not math.isfinite(update.report[0]):
                self.server.tickets.end_early()

    def begin_counting(self) -> None:
        """Start measuring the time of the next update."""
        self._began_update = time.perf_counter()

    def _new_bytes(self) -> tuple[float, float]:
        """Return the message and wire bytes sent by this rank since the last call."""
        message, wire = self.server.sent
        message += sum(channel.counters.message_bytes for channel in self.policy.channels)
        wire += sum(channel.counters.wire_bytes for channel in self.policy.channels)
        before, self._reported = self._reported, (message, wire)
        return float(message - before[0]), float(wire - before[1])

    def _residuals(self) -> Residuals:
        """Return the residuals of the messages to each rank.

        In checkpoints, these residuals are slices of the buckets' residuals.
        """
        size = self.mesh.dp.size
        residuals: list[list[Feedback | None]] = [[] for _ in range(size)]
        for piece in self._pieces:
            for rank, part in enumerate(cut_evenly(piece.bucket.values.numel(), size)):
                if piece.feedback is None:
                    residuals[rank].append(None)
                    continue
                residual = Feedback(0)
                residual.sent, residual.summed = piece.feedback.sent[part], piece.feedback.summed[part]
                residuals[rank].append(residual)
        return residuals


def rounds(steps: int, taken: int, *, every: Sequence[int], counted: int) -> list[int]:
    """Return the last steps of the remaining rounds.

    Parameters
    ----------
    steps, taken
        Number of steps of the run, and number of completed steps.
    every
        Numbers of steps between evaluations and between checkpoints, or 0 to disable.
    counted
        First step that is included in the speed measurement.
    """
    ends = {steps, counted - 1, *(k for gap in every if gap for k in range(gap, steps, gap))}
    return sorted(end for end in ends if taken < end <= steps)
