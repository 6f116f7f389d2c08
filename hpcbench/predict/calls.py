"""The calls of a training step: what one rank sends, in which part of the step, from the settings alone. Pure.

This is the one description of the engine's traffic. Its bytes, added up, are the volume model (`volume`), which equals
the engine's counters; its order is what the simulation of a step (`step`) carries out.
"""

from collections.abc import Iterator
from functools import cached_property

from hpcbench.contract.grid import is_summed_by_channel
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import ElementRange
from hpcbench.contract.traffic import Traffic, find_content
from hpcbench.contract.training import UNFLUSHED, Model, Train
from hpcbench.features.prune.traffic import Zeros, choosing, masked
from hpcbench.predict import context
from hpcbench.predict import grid as grids
from hpcbench.predict.buckets import PredictedBucket, get_itemsize, lay_out_buckets
from hpcbench.predict.call import WIDTHS, PredictedCall, RepeatedCall
from hpcbench.predict.experts import ExpertCalls, Routed
from hpcbench.predict.rows import SentRows, list_reductions


class StepCalls:
    """What one rank sends in a step.

    Parameters
    ----------
    model, train, layout
        The run's model, settings and layout.
    rank
        In the world.
    updates
        Updates of the optimizer before this step, by which 1-bit Adam knows whether its variance is frozen.
    node_ranks
        Neighbours of a data-parallel group that share a node, for `node_copy`; None for all.
    routed
        Rows of experts that drop nothing. None takes as many as if all experts got equally many.
    rows
        Rows of the embedding's gradient, where they may travel by themselves: only the text knows them.
    zeros
        Zeros of sparse weights. None takes them as evenly spread.
    """

    def __init__(
        self,
        model: Model,
        train: Train,
        layout: Layout,
        rank: int,
        *,
        updates: int = 0,
        node_ranks: int | None = None,
        routed: Routed | None = None,
        rows: SentRows | None = None,
        zeros: Zeros | None = None,
    ) -> None:
        self._routed, self._rows = routed, rows
        self._updates = updates
        self._model, self._train, self._layout = model, train, layout
        self.stage, self._replica, self._index = layout.coordinates(rank)
        self._rank = rank
        self.parts = range(self.stage, layout.parts, layout.pp)
        self._cut = layout.layers_of(model.layers)
        self.laid = lay_out_buckets(model, train, layout, rank)
        self.buckets = [kind for laid in self.laid.values() for kind in laid.kinds]
        """All that differ, each with how many there are."""
        if train.prune is not None:
            ordered = [
                self.laid[number].kinds[k][0] for number in reversed(self.parts) for k in self.laid[number].order
            ]
            self.buckets = masked(ordered, model, train, layout, updates=updates, zeros=zeros)
        self.micro_batches = train.global_batch // layout.dp // train.micro_batch
        self._tokens = train.micro_batch * train.seq_len // layout.cp
        self._exact = get_itemsize(train)
        self._widths = {content: WIDTHS[name] for content, name in train.message_formats.items()}
        self._experts = ExpertCalls(model, train, layout)
        self._again = train.recompute not in ("none", "selective")
        self._frozen = train.freeze_step is not None and updates >= train.freeze_step
        self._node_ranks = node_ranks if train.node_copy else None
        holder, place = layout.expert_coordinates(self._replica)
        self._sizes = {
            "tp": (layout.tp, self._index),
            "cp": (layout.cp, self._replica % layout.cp),
            "dp": (layout.replicas, self._replica),
            "node": (node_ranks or layout.replicas, self._replica % (node_ranks or layout.replicas)),
            "ep": (layout.ep, place),
            "edp": (layout.expert_replicas, holder),
            "pp": (layout.pp, self.stage),
            "ends": (2, int(self.stage == layout.pp - 1)),
            "world": (layout.ranks, rank),
        }

    def locate(self, call: PredictedCall) -> tuple[int, int]:
        """Size of the call's group, and this rank's place in it."""
        if call.group not in self._sizes:
            axes, grid = tuple(call.group), self._layout.grid
            self._sizes[call.group] = grid.count(axes), grid.index(self._index, axes)
        return self._sizes[call.group]

    def all(self) -> Iterator[RepeatedCall]:
        """Every call of the step, with how often it is made."""
        for number in self.parts:
            for each in (self.forward(number), self.backward(number)):
                for call, times in each:
                    yield call, times * self.micro_batches
            for call, times in (*self.attention_forward(number), *self.attention_backward(number)):
                yield call, times * self.micro_batches
            for sent in (self.activations(number), self.gradients_back(number)):
                if sent:
                    yield sent, self.micro_batches
            if header := self.header(number):
                yield header, self.micro_batches
        for bucket, count in self.buckets:
            for gathered in (self.gathered_forward(bucket), self.gathered_backward(bucket)):
                if gathered:
                    yield gathered[0], gathered[1] * count * self.micro_batches
            times = count * (self.micro_batches if self._train.zero >= 2 else 1)
            yield from list_reductions(self.reduction(bucket), times, bucket.width, self._layout.replicas, self._rows)
        if self._routed:
            yield from self._experts.counted_calls(self._routed, forwards=1 + self._again)
        yield from self.end()

    def forward(self, number: int) -> list[RepeatedCall]:
        """Within part `number`, for one micro-batch.

        Forward the residual stream (arXiv 1909.08053, section 3; with sequence parallelism 2205.05198, section 4.2.2)
        leaves two regions a layer and the embedding, and enters two regions a layer and the head. Leaving sums forward,
        entering backward; spread by positions, each is a reduce-scatter, and the other way an all-gather. The last part
        has the statistics of the softmax over a split vocabulary: largest logits, and then sums of exponentials and
        target logits together.
        """
        if self._layout.tensor != "1d":
            return self._grid_forward(number)
        found = self._crossings("FORWARD", self._leaves(number), self._enters(number))
        found += self._to_experts("FORWARD", number)
        if number == self._layout.parts - 1 and self._layout.tp > 1:
            for each in (1, 2):
                channel = ("EXACT", "FORWARD", "ACT")
                found.append((PredictedCall(channel, "all-reduce", each * self._tokens, self._exact, "tp"), 1))
        return found

    def backward(self, number: int) -> list[RepeatedCall]:
        """Within part `number`, for one micro-batch: what is recomputed goes through its regions once more."""
        if self._layout.tensor != "1d":
            return self._grid_backward(number)
        regions = self._regions(number) * self._again
        again = self._crossings("FORWARD", regions, regions)
        again += self._to_experts("FORWARD", number) if self._again else []
        back = self._crossings("BACKWARD", self._enters(number), self._leaves(number))
        return again + back + self._to_experts("BACKWARD", number)

    def _regions(self, number: int) -> int:
        """Regions of the whole residual stream: attention and MLP of each layer; of experts the shared one only."""
        layers, experts = self._cut[number], self._model.experts
        routed = len(self._expert_layers(number))
        return 2 * len(layers) - routed + routed * (experts is not None and experts.shared)

    def attention_forward(self, number: int) -> list[RepeatedCall]:
        """By the attention of part `number` over the ranks that share positions, for one micro-batch."""
        return self._attended(number, context.list_forward(self._model, self._train, self._layout))

    def attention_backward(self, number: int) -> list[RepeatedCall]:
        """The same in the backward pass, with what is recomputed."""
        sends = context.list_backward(self._model, self._train, self._layout)
        if self._train.recompute != "none":
            sends = context.list_forward(self._model, self._train, self._layout) + sends
        return self._attended(number, sends)

    def _attended(self, number: int, sends: list[context.AttentionCall]) -> list[RepeatedCall]:
        width, layers = self._widths["activations"], len(self._cut[number])
        return [
            (PredictedCall(one.channel, one.operation, one.elements, width, "cp"), one.times * layers) for one in sends
        ]

    def _leaves(self, number: int) -> int:
        return self._regions(number) + (number == 0)

    def _enters(self, number: int) -> int:
        return self._regions(number) + (number == self._layout.parts - 1)

    def _expert_layers(self, number: int) -> list[int]:
        return self._model.experts.layers_of(self._cut[number]) if self._model.experts else []

    def _to_experts(self, phase: str, number: int) -> list[RepeatedCall]:
        """What experts send for one micro-batch."""
        return list(self._experts.calls(phase, len(self._expert_layers(number)), counted=self._routed is not None))

    def _crossings(self, phase: str, summed: int, gathered: int) -> list[RepeatedCall]:
        """So many sums over the tensor group, and with sequence parallelism so many gatherings."""
        if self._layout.tp == 1:
            return []
        kind, spread = ("ACT" if phase == "FORWARD" else "GRAD"), self._train.sequence_parallel
        n, width = self._tokens * self._model.hidden, self._widths["activations"]
        channel = ("SP" if spread else "TP", phase, kind)
        found = [(PredictedCall(channel, "reduce-scatter" if spread else "all-reduce", n, width, "tp"), summed)]
        found += [(PredictedCall(channel, "all-gather", n, width, "tp"), gathered)] if spread else []
        return [(call, times) for call, times in found if times]

    def _grid_forward(self, number: int) -> list[RepeatedCall]:
        grid, rows, last = self._layout.grid, self._tokens, number == self._layout.parts - 1
        found = self._statistics([grids.describe_norm_forward(grid, rows)], 2 * len(self._cut[number]) + last)
        for layer, times in self._grid_layers(number):
            found += self._moves(grids.list_forward_moves(grid, layer), times)
        return found + self._statistics(grids.list_loss_statistics(grid, rows), int(last))

    def _grid_backward(self, number: int) -> list[RepeatedCall]:
        grid, rows, layers = self._layout.grid, self._tokens, len(self._cut[number])
        found: list[RepeatedCall] = []
        if self._again:
            found += self._statistics([grids.describe_norm_forward(grid, rows)], 2 * layers)
            for layer in grids.list_block_products(rows, self._model.hidden):
                found += self._moves(grids.list_forward_moves(grid, layer), layers)
        for layer, times in self._grid_layers(number):
            found += self._moves(grids.list_backward_moves(grid, layer), times)
        last = number == self._layout.parts - 1
        return found + self._statistics([grids.describe_norm_backward(grid, rows)], 2 * layers + last)

    def _grid_layers(self, number: int) -> list[tuple[grids.GridProduct, int]]:
        """The products of a part on a tensor grid, and how many of each there are."""
        rows, model = self._tokens, self._model
        found = [(grids.make_lookup(rows, model), 1)] if number == 0 else []
        found += [(layer, len(self._cut[number])) for layer in grids.list_block_products(rows, model.hidden)]
        return found + ([(grids.make_head(rows, model), 1)] if number == self._layout.parts - 1 else [])

    def _moves(self, sends: list[grids.MatrixMove], times: int) -> list[RepeatedCall]:
        grid = self._layout.grid
        found = []
        for traffic, operation, held in sends:
            axis = traffic[3]
            width = self._widths[find_content(traffic) or ""]
            found.append((PredictedCall(traffic, operation, grid.sizes[axis] * held, width, axis), times))
        return found

    def _statistics(self, statistics: list[grids.Statistic], times: int) -> list[RepeatedCall]:
        return [
            (PredictedCall(traffic, operation, elements, self._exact, "".join(axes)), times)
            for traffic, operation, axes, elements in statistics
            if times
        ]

    def activations(self, number: int) -> PredictedCall | None:
        """What a part sends on; the last one sends nothing."""
        return self._boundary(("PP", "FORWARD", "ACT")) if number < self._layout.parts - 1 else None

    def gradients_back(self, number: int) -> PredictedCall | None:
        """What a part sends back; the first one sends nothing."""
        return self._boundary(("PP", "BACKWARD", "GRAD")) if number else None

    def header(self, number: int) -> PredictedCall | None:
        """What a part sends before its activation in a pipeline without a flush: micro-batch and version."""
        if self._train.schedule not in UNFLUSHED or number == self._layout.parts - 1:
            return None
        return PredictedCall(("EXACT", "FORWARD", "ACT"), "send", 2, 8, "pp")

    def _boundary(self, channel: Traffic) -> PredictedCall:
        n = self._tokens * self._model.hidden // self.spread
        return PredictedCall(channel, "send", n, self._widths["activations"], "pp")

    @cached_property
    def spread(self) -> int:
        """Ranks that share the residual stream between the layers."""
        if self._layout.tensor == "1d":
            return self._layout.tp if self._train.sequence_parallel else 1
        grid = self._layout.grid
        return grid.count(grid.stream.rows) * grid.count(grid.stream.columns)

    def gathered_forward(self, bucket: PredictedBucket) -> RepeatedCall | None:
        """ZeRO-3: once for each run of neighbouring units that use the bucket, for one micro-batch."""
        if self._train.zero < 3:
            return None
        channel, group = ("ZERO", "FORWARD", "PARAM"), _holders(bucket)
        elements = bucket.sent or bucket.length
        return PredictedCall(channel, "all-gather", elements, self._widths["parameters"], group), bucket.gathers

    def gathered_backward(self, bucket: PredictedBucket) -> RepeatedCall | None:
        """ZeRO-3: once for one micro-batch, from the node's copy where there is one."""
        if self._train.zero < 3:
            return None
        channel, group = ("ZERO", "BACKWARD", "PARAM"), "node" if self._node_ranks else _holders(bucket)
        return PredictedCall(channel, "all-gather", bucket.sent or bucket.length, self._widths["parameters"], group), 1

    def reduction(self, bucket: PredictedBucket) -> PredictedCall:
        """Gradients over replicas, once a step, at ZeRO stages 2 and 3 for each micro-batch.

        They are momenta when 1-bit Adam's variance is frozen.
        """
        channel = ("DP", "STEP", "OPTIM") if self._frozen else ("DP", "BACKWARD", "GRAD")
        width = self._exact if self._frozen else self._widths["gradients"]
        operation = "reduce-scatter" if self._train.zero else "all-reduce"
        return PredictedCall(channel, operation, bucket.sent or bucket.length, width, _holders(bucket))

    def end(self) -> list[RepeatedCall]:
        """StepCalls after the last backward pass and the reductions.

        These are copies of a tied weight, summands of what ranks hold alike, the gradient's norm, and updated weights
        back to the replicas.
        """
        found: list[RepeatedCall] = []
        owned = sum(count * self._owned(bucket).size for bucket, count in self.buckets if bucket.tied)
        if owned:
            found.append(
                (PredictedCall(("PP", "STEP", "GRAD"), "all-reduce", owned, self._widths["gradients"], "ends"), 1)
            )
        found += [(self._summands(bucket), count) for bucket, count in self.buckets if bucket.summands]
        if self._train.schedule not in UNFLUSHED:
            found.append((PredictedCall(("EXACT", "STEP", "OPTIM"), "all-gather", self._layout.ranks, 8, "world"), 1))
        each = [bucket for bucket, _ in self.buckets]
        found += choosing(each, self._model, self._train, self._layout, updates=self._updates)
        if self._train.zero in (1, 2):
            width = self._widths["parameters"]
            for bucket, count in self.buckets:
                elements = bucket.given or bucket.length
                gathered = PredictedCall(("ZERO", "STEP", "PARAM"), "all-gather", elements, width, _holders(bucket))
                found.append((gathered, count))
        return found

    def _summands(self, bucket: PredictedBucket) -> PredictedCall:
        """Gradients of what ranks hold alike: each rank has a summand.

        Under sequence parallelism these are norms, biases of rows and learned positions; on a tensor grid those of the
        rank's own rows, and of 2.5d's weights over depth.
        """
        axes, piece = bucket.summands, self._owned(bucket)
        n = max(min(piece.stop, bucket.filled) - piece.start, 0)
        words = ("TP" if is_summed_by_channel(axes) else "EXACT", "BACKWARD", "GRAD")
        if self._layout.tensor == "1d":
            return PredictedCall(words, "all-reduce", n, self._exact, "tp")
        channel: Traffic = (*words, "".join(axes))
        width = self._widths[find_content(channel) or ""] if is_summed_by_channel(axes) else self._exact
        return PredictedCall(channel, "all-reduce", n, width, "".join(axes))

    def _owned(self, bucket: PredictedBucket) -> ElementRange:
        """The elements that this rank updates."""
        if not self._train.zero:
            return ElementRange(0, bucket.length)
        size, index = self._sizes[_holders(bucket)]
        piece = bucket.length // size  # buckets are padded, so that all pieces are equal
        return ElementRange(index * piece, (index + 1) * piece)


def _holders(bucket: PredictedBucket) -> str:
    """The group of the ranks that hold the same bucket."""
    return "edp" if bucket.ep > 1 else "dp"
