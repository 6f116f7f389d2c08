"""Training with a pipeline without flush. Stages do not wait for each other at the end of a step."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hpcbench.contract.events import Staleness, StalenessOf
from hpcbench.parallel.exact import everyones_counts, gather
from hpcbench.parallel.pipeline import MicroBatch, Pipeline
from hpcbench.parallel.reports import Reports
from hpcbench.parallel.stream import Stream
from hpcbench.parallel.stream_pipeline import StreamPipeline
from hpcbench.parallel.versions import Versions
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.step_result import StepResult
from hpcbench.train.stop import never
from hpcbench.train.trainer import Trainer

_STOP, _DIVERGED = 1, 2
"""Bit flags in replies of the first rank."""
_FLIGHT = "@"
"""Prefix of the call counts of in-flight micro-batches in a checkpoint, followed by the number of the micro-batch."""


class StreamTrainer(Trainer):
    """Trainer of one rank's part of the model, with several weight versions.

    At the end of a step, only the first rank has the loss and the gradient norm. After a stop request or divergence,
    all ranks end some steps later, at the same step. A gradient norm that is not finite ends the run, because stages
    cannot notify each other in time to skip an update.

    Attributes
    ----------
    versions : Versions
        Weight versions of the stage. Between steps, the newest version is loaded, which is the same on all stages.
    stream : Stream
        Schedule of actions and versions.
    """

    pipeline: StreamPipeline

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reports = Reports(self.mesh.world, self._exact, self.stream.lag)
        self._drawn: dict[int, list[MicroBatch]] = {}

    def _pipeline_of(self, parts: list[nn.Module], **others: Any) -> Pipeline:
        train, layout = self.run.train, self.run.layout
        micro_batches = train.global_batch // layout.dp // train.micro_batch
        self.stream = Stream.of(train, stages=layout.pp, micro_batches=micro_batches)
        self.versions = Versions([piece.bucket.values for piece in self.data_parallel.pieces])
        return StreamPipeline(parts, stream=self.stream, versions=self.versions, **others)

    def step(self, step: int, told_to_stop: Callable[[], bool] = never) -> StepResult:
        """Run step `step` (from 0). See the class for the result on ranks other than the first."""
        timed = self._timed(step)
        assert timed.norm is not None  # `update` always returns this rank's contribution
        own_lost = float(self.policy.lost_overflows - self._lost)
        summands = [timed.loss, timed.norm, timed.message_bytes, timed.wire_bytes, float(told_to_stop()), own_lost]
        loss, square, message, wire, stop, lost = self._reports.sums(summands)
        diverged = lost > 0 or not math.isfinite(loss + square)
        self._reports.answer(_STOP * (stop > 0) + _DIVERGED * diverged, step=step + 1)
        answers = self._reports.read()
        if any(answers.values()) or step + 1 == self.stream.steps:
            answers |= self._reports.drain()
            self._settle()
        return StepResult(
            loss if math.isfinite(square) and not lost > 0 else math.nan,
            timed.seconds,
            timed.lr,
            math.sqrt(square) if math.isfinite(square) else math.nan,
            round(message),
            round(wire),
            skipped=False,
            loss_scale=1.0,
            stop=any(answer & _STOP for answer in answers.values()),
            diverged=min((about for about, answer in answers.items() if answer & _DIVERGED), default=None),
        )

    def _passes(self, step: int, batches: list[MicroBatch]) -> list[float]:
        actions = self.stream.actions(self.mesh.pp.rank, step)
        losses = self.pipeline.advance(actions, self._batch, phases=self.phases)
        done = [drawn for drawn in self._drawn if drawn <= step]
        for each in done:
            del self._drawn[each]
        return losses

    def _batch(self, i: int) -> MicroBatch:
        """Return the micro-batch with the given number in the run."""
        step, place = divmod(i, self.stream.micro_batches)
        if step not in self._drawn:
            self._drawn[step] = self._batches.train(step)
        return self._drawn[step][place]

    def update(self, step: int) -> tuple[float, float]:
        """Create the next weight version.

        Return the learning rate, and this rank's contribution to the squared gradient norm.
        """
        lr = learning_rate(step, self.run.train)
        square = self.data_parallel.gradient_square()
        oldest = self.pipeline.needed_from()
        self.versions.forget_before(oldest)
        self.versions.begin_update(keep=oldest <= self.versions.newest)
        self.data_parallel.step(lr=lr, clip=0.0, norm=0.0)
        self.versions.end_update()
        return lr, square

    def evaluate(self) -> tuple[float, int]:
        """Return the mean validation loss of the newest version in nats per token, and the number of tokens."""
        self._settle()
        return super().evaluate()

    def held_bytes(self) -> dict[str, int]:
        """Return the size in bytes of the tensors that persist between steps, including stashed versions."""
        return super().held_bytes() | {"device stashes": self.versions.stashed_bytes}

    def staleness(self) -> Staleness:
        """Return the staleness of each stage's gradients (a collective call). All ranks return the same result."""
        layout, ranks = self.mesh.layout, self.mesh.world.size
        counts = everyones_counts(self.mesh.world, self.pipeline.delays, self._exact)
        most = [round(most) for (most,) in gather(self.mesh.world, [float(self.versions.most)], self._exact)]
        firsts = range(0, ranks, ranks // layout.pp)
        return Staleness(
            of="stage",
            places=tuple(
                StalenessOf(place=stage, versions=most[rank], counts={str(k): n for k, n in counts[rank].items()})
                for stage, rank in enumerate(firsts)
            ),
        )

    def state(self) -> dict[str, Any]:
        """Return the `Trainer.state`, including the version number and the stashed versions.

        Stashed versions are fields of the parameters. There is a field for each version that the schedule may need, so
        the fields are the same at every step. Fields of unavailable versions contain the current weights.
        """
        self._settle()
        state = super().state()
        state["version"] = self.versions.newest
        for delay in range(1, self.stream.versions(self.mesh.pp.rank)):
            version = self.versions.newest - delay
            held = version in self.versions.held
            for name, values in self._by_name(version if held else self.versions.newest).items():
                state["parameters"][name][f"delay {delay}"] = values.to("cpu", copy=True).view(-1)
        for i, calls in self.pipeline.calls_of_flights().items():
            state["calls"] |= {f"{_FLIGHT}{i} {name}": count for name, count in calls.items()}
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a `state` of this rank, including its versions and its in-flight micro-batches."""
        calls = {name: count for name, count in state["calls"].items() if not name.startswith(_FLIGHT)}
        super().load({**state, "calls": calls})
        newest, stage = state["version"], self.mesh.pp.rank
        entered = self.stream.entered(stage, newest)
        needed = [self.stream.version(stage, i) for i in (*entered, entered.stop) if i < self.stream.total]
        oldest = min(needed, default=newest)
        self.versions.restore(newest, min(oldest, newest))
        for version in range(oldest, newest):
            for name, there in self._by_name(version).items():
                there.view(-1).copy_(state["parameters"][name][f"delay {newest - version}"])
        flights: dict[int, dict[str, int]] = {i: {} for i in entered}
        for name, count in state["calls"].items():
            if name.startswith(_FLIGHT):
                number, _, channel = name.removeprefix(_FLIGHT).partition(" ")
                flights[int(number)][channel] = count
        self.pipeline.repeat(newest, self._batch, flights)
        self.policy.load_calls(calls)
        self.versions.use(newest)

    def _by_name(self, version: int) -> dict[str, Tensor]:
        """Return views of the parameters of an available version, keyed by name."""
        return {
            slot.shard.name: values[slot.span]
            for piece, values in zip(self.data_parallel.pieces, self.versions.values(version), strict=True)
            for slot in piece.bucket.slots
        }

    def _settle(self) -> None:
        with self.traffic.late():
            self.pipeline.settle()
        self.versions.use(self.versions.newest)
