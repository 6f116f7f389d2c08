"""Trainer of one rank: steps, evaluation, and state."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from hpcbench.comm import links
from hpcbench.comm.clock import Clock
from hpcbench.comm.places import Places
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.events import Staleness
from hpcbench.contract.run import Run
from hpcbench.contract.sparse_fit import may_send_rows
from hpcbench.parallel.buffers import room
from hpcbench.parallel.exact import exact_sum, gather
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.phases import Phases
from hpcbench.parallel.pipeline import MicroBatch, Pipeline
from hpcbench.parallel.recompute import recompute
from hpcbench.parallel.schedule import SCHEDULES, forward_only
from hpcbench.train.batches import Batches
from hpcbench.train.build import build, engine_of
from hpcbench.train.corpus import Corpus
from hpcbench.train.expert_counts import ExpertCounts
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.model import loss
from hpcbench.train.precision import DTYPES, LossScale, message_dtypes
from hpcbench.train.row_counts import RowCounts
from hpcbench.train.scheme import check_nodes
from hpcbench.train.step_result import StepResult, Timed
from hpcbench.train.stop import never
from hpcbench.train.traffic import Traffic


class Trainer:
    """Trainer of one rank's part of the model.

    Parameters
    ----------
    run
        Settings of the run.
    comm
        Communicator of ``run.ranks`` ranks.
    progress
        Progress engine of the groups' operations.
    corpus
        Corpus of the run.
    places
        Memory locations of the groups' arrays (see `Mesh`).

    Attributes
    ----------
    corpus : Corpus
        Corpus of the run.
    skipped : int
        Number of steps that were skipped because a gradient was not finite.
    traffic : Traffic
        Traffic of the channels in timed steps.
    phases : Phases
        Times of the phases in timed steps.
    experts : ExpertCounts
        Token counts of the experts in timed steps.
    rows : RowCounts
        Statistics of the gradient reductions in timed steps that send only touched rows.
    """

    def __init__(
        self, run: Run, comm: MPI.Comm, progress: Progress, corpus: Corpus, places: Places | None = None
    ) -> None:
        self.run = run
        self.corpus = corpus
        speeds = links.load(Path(run.links)).over(run.train.transport or "mpi") if run.links else links.DEFAULT
        self.mesh = Mesh(comm, run.layout, progress, speeds, places)
        check_nodes(run, self.mesh)
        self.policy = Policy(run.scheme, message_dtypes(run.train))
        self._lost = 0
        self._exact = self.policy.exact
        self._clock = self.mesh.places.clock(room((1,), like=torch.empty(0, device=run.device)))
        self.phases = Phases(clock=self._clock)
        self._scale = LossScale.of(run.train)
        self.skipped = 0
        model, train = run.model, run.train
        built = build(run, self.mesh, self.policy)
        self.module, self.held = built.module, built.held
        self.experts = ExpertCounts(built.routed, self.mesh)
        self.data_parallel = engine_of(run, built, self.mesh, self.policy)
        self.traffic = Traffic(self.policy, self.mesh, self.data_parallel.link)
        self.rows = RowCounts(self.data_parallel, self.mesh)
        if (
            train.sparse_gradients == "measured"
            and may_send_rows(model, train, run.layout.tensor)
            and self.mesh.dp.size > 1
        ):
            self.rows.measure(self.policy, self._clock)
        for part in built.parts:
            recompute(part, train.recompute)
        self.pipeline = self._pipeline_of(
            built.parts,
            mesh=self.mesh,
            policy=self.policy,
            shape=partial(built.tensors.stream_shape, hidden=model.hidden),
            dtype=DTYPES[train.precision],
            device=run.device,
            loss=built.tensors.loss(loss, model.vocab),
        )
        self._batches = Batches(
            corpus,
            seed=train.seed,
            seq_len=train.seq_len,
            global_batch=train.global_batch,
            micro_batch=train.micro_batch,
            rank=self.mesh.sample_rank,
            size=run.layout.dp,
            device=run.device,
            samples=run.data.samples,
            own=built.positions.select,
        )

    def _pipeline_of(self, parts: list[nn.Module], **others: Any) -> Pipeline:
        """Create the pipeline of this rank's chunks."""
        return Pipeline(parts, **others)

    @property
    def smallest_loss_scale(self) -> float:
        """Minimum loss scale. If a step overflows even with this scale, no scale makes the gradients finite."""
        return self._scale.smallest

    def forget_times(self) -> None:
        """Reset all traffic counters and times, for example after the warm-up."""
        self.traffic.forget()
        self.experts.forget()
        self.rows.forget()
        self.phases = Phases(clock=self._clock)

    @property
    def clock(self) -> Clock:
        """Clock of this rank's computation."""
        return self._clock

    def record(self, recorder: Recorder | None) -> None:
        """Attach a trace recorder. `None` detaches the recorder."""
        self.policy.record(recorder)
        self.phases.recorder = recorder

    def step(self, step: int, told_to_stop: Callable[[], bool] = never) -> StepResult:
        """Run step `step` (from 0). If gradients are not finite, the weights do not change.

        `told_to_stop` is called after the timed part of the step. The returned value is sent to all ranks together
        with other values that are summed in every step.
        """
        scale = self._scale.value
        self.policy.begin_step(step + 1)
        self.data_parallel.follow_changes(self.policy)
        self.pipeline.errors.follow_changes(self.policy)
        self.pipeline.changes.follow_changes(self.policy)
        timed = self._timed(step)
        accepted = self.experts.take_kept()
        summands = [timed.loss, timed.message_bytes, timed.wire_bytes, float(told_to_stop()), accepted]
        sums = exact_sum(self.mesh.world, summands, self._exact)
        message, wire = round(sums[1]), round(sums[2])
        return StepResult(
            sums[0],
            timed.seconds,
            timed.lr,
            timed.norm,
            message,
            wire,
            skipped=timed.norm is not None and not math.isfinite(timed.norm),
            loss_scale=scale,
            stop=sums[3] > 0,
            diverged=None if math.isfinite(sums[0]) else step + 1,
            kept_choices=round(sums[4]),
        )

    def _timed(self, step: int) -> Timed:
        """Run a step, and record its time and traffic on this rank."""
        clock, phases = self._clock, self.phases
        clock.settle()  # messages between steps belong to no step
        self.traffic.begin()
        start = clock.mark()
        mean_loss = self.backward(step)
        computed = clock.mark()
        lr, norm = self.update(step)
        end = clock.mark()
        spent: list[float] = []
        clock.count(start, end, spent.append)
        phases.count("optimizer", computed, end)
        phases.count("step", start, end)
        phases.steps += 1
        clock.settle()
        (seconds,) = spent
        return Timed(mean_loss, seconds, lr, norm, *self.traffic.end(seconds))

    def backward(self, step: int) -> float:
        """Compute and reduce the gradients of step `step`. Return this rank's contribution to the mean loss."""
        self._lost = self.policy.lost_overflows
        batches = self._batches.train(step)
        self.data_parallel.begin(micro_batches=len(batches), loss_scale=self._scale.value)
        self.experts.set_factor(self._scale.value / len(batches))
        self.experts.active = True
        losses = self._passes(step, batches)
        self.experts.active = False
        begin = self._clock.mark()
        self.data_parallel.reduce_gradients()
        self.phases.count("reduction", begin, self._clock.mark())
        if not losses or self.mesh.tp.rank:
            return 0.0
        return sum(losses) / len(losses) / self.mesh.dp.size

    def _passes(self, step: int, batches: list[MicroBatch]) -> list[float]:
        """Run the passes of a step. On the last stage, return the mean loss of each micro-batch."""
        schedule, layout = SCHEDULES[self.run.train.schedule], self.run.layout
        begin = time.perf_counter()
        losses = self.pipeline.run(
            lambda stage: schedule(stage, layout.pp, len(batches), layout.chunks),
            batches,
            loss_scale=self._scale.value,
            phases=self.phases,
        )
        factor = self.run.train.slow_factor
        if factor > 1 and self.run.train.slow_rank == self.mesh.rank:
            clock = self.phases.clock
            mark = clock.mark()
            time.sleep((factor - 1) * (time.perf_counter() - begin))
            self.phases.count("backward", mark, clock.mark())
        return losses

    def update(self, step: int) -> tuple[float, float | None]:
        """Update the weights with the reduced gradients if the gradients are finite.

        Return the learning rate and the gradient norm. The norm is None if it is unknown.
        """
        lr = learning_rate(step, self.run.train)
        norm = math.nan if self._overflow_lost() else self.data_parallel.gradient_norm()
        overflow = norm is not None and not math.isfinite(norm)
        if overflow:
            self.data_parallel.forget_residuals()
            self.pipeline.errors.forget()
            self.pipeline.changes.forget()
        else:
            self.data_parallel.step(lr=lr, clip=self.run.train.clip, norm=norm)
        before = self._scale.value
        self._scale.update(overflow=overflow)
        self.pipeline.errors.scale(self._scale.value / before)
        self.skipped += overflow
        return lr, norm

    def _overflow_lost(self) -> bool:
        """Return whether a codec on any rank has replaced NaN or infinity with a finite value.

        All ranks return the same result.
        """
        if self.policy.carries_overflow:
            return False
        lost = float(self.policy.lost_overflows - self._lost)
        return exact_sum(self.mesh.world, [lost], self._exact)[0] > 0

    def evaluate(self) -> tuple[float, int]:
        """Return the mean validation loss in nats per token, and the number of tokens."""
        batches = self._batches.valid(self.run.train.eval_samples)
        passes = len(batches)
        if self.run.train.zero == 3:  # replicas gather weights from each other, so all need the same number of passes
            passes = round(max(most for (most,) in gather(self.mesh.dp, [passes], self._exact)))
        filler = (batches or self._batches.train(0))[-1:]
        layout, filled = self.run.layout, [*batches, *filler * (passes - len(batches))]
        with torch.no_grad():
            losses = self.pipeline.run(lambda stage: forward_only(stage, layout.pp, passes, layout.chunks), filled)
        del losses[len(batches) :]
        total, tokens = 0.0, 0
        if self.mesh.last_stage and self.mesh.tp.rank == 0:
            sizes = [batch.targets.numel() for batch in batches]
            total = sum(loss * size for loss, size in zip(losses, sizes, strict=True))
            tokens = sum(sizes)
        total, count = exact_sum(self.mesh.world, [total, float(tokens)], self._exact)
        return total / count, round(count)

    def held_bytes(self) -> dict[str, int]:
        """Return the size in bytes of the tensors that persist between steps, by location and purpose."""
        held, errors = self.data_parallel.held_bytes(), self.pipeline.errors.nbytes + self.pipeline.changes.nbytes
        name = "host residuals" if self.run.device == "cpu" else "device residuals"
        return held | ({name: held.get(name, 0) + errors} if errors else {})

    def staleness(self) -> Staleness | None:
        """Return the staleness of the gradients (a collective call), or None if the staleness is always zero."""
        return None

    def state(self) -> dict[str, Any]:
        """Return the state of this rank in host memory, keyed by global parameter names.

        The state contains all values that affect the next step. Two additional entries describe the parts of the
        parameters that the tensors represent, and the ranks that hold different residuals of the same elements. These
        ranks are the other replicas. If residuals belong to partial gradients, these ranks also include the stage with
        the other copy of a tied weight and, under sequence parallelism, the other ranks of the tensor-parallel group.
        The state does not contain the step number.
        """
        summands = self.data_parallel.residuals_are_summands
        spread = summands and any(shard.partial for _, shard in self.held)
        return {
            "parameters": self.data_parallel.held_weights(),
            "optimizer": self.data_parallel.optimizer(),
            "updates": self.data_parallel.updates,
            "residuals": self.data_parallel.residuals(),
            "factors": self.data_parallel.factors(),
            "boundaries": self.pipeline.errors.save(),
            "samples": self.pipeline.changes.save(),
            "loss_scale": asdict(self._scale),
            "calls": self.policy.calls(),
            "skipped": self.skipped,
            "shards": {shard.name: shard for _, shard in self.held},
            "holder": [
                self.mesh.dp.rank,
                self.mesh.pp.rank if summands else 0,
                self.mesh.tp.rank if spread else 0,
            ],
            "replicas": self.mesh.dp.size,
            "summands": summands,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a `state` of this rank.

        Subsequent steps are bitwise identical to the steps of an uninterrupted run.

        Raises
        ------
        KeyError, ValueError
            The state belongs to a different part of the model.
        """
        self.data_parallel.load_weights(state["parameters"])
        self.data_parallel.load_optimizer(state["optimizer"], updates=state["updates"])
        self.data_parallel.load_residuals(state["residuals"])
        self.data_parallel.load_factors(state["factors"])
        self.pipeline.errors.load(state["boundaries"])
        self.pipeline.changes.load(state["samples"])
        self._scale = LossScale(**state["loss_scale"])
        self.policy.load_calls(state["calls"])
        self.skipped = state["skipped"]
