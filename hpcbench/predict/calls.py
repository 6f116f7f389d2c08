"""Communication calls of one rank in a training step, in order, computed from the settings alone. Pure.

This module is the only description of the engine's traffic. The volume model (`volume`) sums the bytes of the calls and
matches the engine's counters exactly. The step simulation (`step`) runs the calls in order.
"""

from collections.abc import Iterator
from functools import cached_property

from hpcbench.contract.grid import is_summed_by_channel
from hpcbench.contract.layout import Layout
from hpcbench.contract.mixed_widths import LEVEL_BYTES, WidthCounts, make_budget, name_codecs
from hpcbench.contract.scheme_fit import count_factors
from hpcbench.contract.shards import ElementRange
from hpcbench.contract.traffic import Traffic, find_content
from hpcbench.contract.training import UNFLUSHED, Model, Train
from hpcbench.features.prune.traffic import Zeros, list_choice_calls, list_masked_buckets
from hpcbench.predict import context
from hpcbench.predict import grid as grids
from hpcbench.predict.buckets import PredictedBucket, get_itemsize, lay_out_buckets
from hpcbench.predict.call import WIDTHS, PredictedCall, RepeatedCall
from hpcbench.predict.experts import list_expert_calls


class StepCalls:
    """Calls of one rank in a step.

    Every expert is assumed to get the same number of rows, and gradients are assumed to be sent whole. In a run,
    these numbers depend on the training text if experts drop no tokens, or if gradients are sent as touched rows.

    Parameters
    ----------
    model, train, layout
        The run's model, settings and layout.
    rank
        Rank in the world.
    updates
        Number of updates before this step, which determines whether the variance of 1-bit Adam is frozen.
    node_ranks
        Number of consecutive data-parallel ranks on a node, for `node_copy`, or None for the whole group.
    zeros
        Zeros of sparse weights. None means that zeros are assumed to be evenly distributed.
    low_rank
        Rank of the low-rank approximation of gradient matrices, or 0 for whole gradients.
    mixed_widths
        Codec of mixed widths, and their budget in bits per value. A budget of 0 means that messages have one width.
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
        zeros: Zeros | None = None,
        low_rank: int = 0,
        mixed_widths: tuple[str, float] = ("", 0.0),
    ) -> None:
        self._updates, self._low_rank, self._mixed_widths = updates, low_rank, mixed_widths
        self._model, self._train, self._layout = model, train, layout
        self.stage, self._replica, self._index = layout.coordinates(rank)
        self.parts = range(self.stage, layout.parts, layout.pp)
        self._cut = layout.layers_of(model.layers)
        self.laid = lay_out_buckets(model, train, layout, rank)
        self.buckets = [kind for laid in self.laid.values() for kind in laid.kinds]
        """Distinct buckets, each with its number of copies."""
        if train.prune is not None:
            ordered = [
                self.laid[number].kinds[k][0] for number in reversed(self.parts) for k in self.laid[number].order
            ]
            self.buckets = list_masked_buckets(ordered, model, train, layout, updates=updates, zeros=zeros)
        self.micro_batches = train.global_batch // layout.dp // train.micro_batch
        self._tokens = train.micro_batch * train.seq_len // layout.cp
        self._exact = get_itemsize(train)
        self._widths = {content: WIDTHS[name] for content, name in train.message_formats.items()}
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
        """Return the size of the call's group, and the index of this rank in the group."""
        if call.group not in self._sizes:
            axes, grid = tuple(call.group), self._layout.grid
            self._sizes[call.group] = grid.count(axes), grid.index(self._index, axes)
        return self._sizes[call.group]

    def list_all(self) -> Iterator[RepeatedCall]:
        """List every call of the step with its number of repetitions."""
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
            for call in self.reductions(bucket):
                yield call, times
        yield from self.end()

    def forward(self, number: int) -> list[RepeatedCall]:
        """List the forward calls within part `number` for one micro-batch.

        The residual stream (arXiv 1909.08053, section 3; with sequence parallelism 2205.05198, section 4.2.2) leaves a
        tensor-parallel region twice per layer and after the embedding, and enters a region twice per layer and before
        the head. Each exit needs a sum in the forward pass, and each entry needs a sum in the backward pass. With
        sequence parallelism, a sum is a reduce-scatter, and the opposite direction is an all-gather. The last part also
        reduces the statistics of the softmax over a sharded vocabulary. The first of these reductions is for the
        largest logits. The second is for the sums of exponentials and the target logits.
        """
        if self._layout.tensor != "1d":
            return self._grid_forward(number)
        calls = self._crossings("FORWARD", self._leaves(number), self._enters(number))
        calls += self._to_experts("FORWARD", number)
        if number == self._layout.parts - 1 and self._layout.tp > 1:
            for each in (1, 2):
                channel = ("EXACT", "FORWARD", "ACT")
                calls.append((PredictedCall(channel, "all-reduce", each * self._tokens, self._exact, "tp"), 1))
        return calls

    def backward(self, number: int) -> list[RepeatedCall]:
        """List the backward calls within part `number` for one micro-batch, including recomputation."""
        if self._layout.tensor != "1d":
            return self._grid_backward(number)
        regions = self._regions(number) * self._again
        again = self._crossings("FORWARD", regions, regions)
        again += self._to_experts("FORWARD", number) if self._again else []
        back = self._crossings("BACKWARD", self._enters(number), self._leaves(number))
        return again + back + self._to_experts("BACKWARD", number)

    def _regions(self, number: int) -> int:
        """Count the tensor-parallel regions: the attention and MLP of each layer.

        In an expert layer, only the shared expert counts as an MLP.
        """
        layers, experts = self._cut[number], self._model.experts
        routed = len(self._expert_layers(number))
        return 2 * len(layers) - routed + routed * (experts is not None and experts.shared)

    def attention_forward(self, number: int) -> list[RepeatedCall]:
        """List the context-parallel forward calls of part `number` for one micro-batch."""
        return self._attended(number, context.list_forward(self._model, self._train, self._layout))

    def attention_backward(self, number: int) -> list[RepeatedCall]:
        """List the context-parallel backward calls of part `number`, including recomputation."""
        sends = context.list_backward(self._model, self._train, self._layout)
        if self._train.recompute != "none":
            sends = context.list_forward(self._model, self._train, self._layout) + sends
        return self._attended(number, sends)

    def _attended(self, number: int, sends: list[context.AttentionCall]) -> list[RepeatedCall]:
        width, layers = self._widths["activations"], len(self._cut[number])
        return [
            (PredictedCall(call.channel, call.operation, call.elements, width, "cp"), call.times * layers)
            for call in sends
        ]

    def _leaves(self, number: int) -> int:
        return self._regions(number) + (number == 0)

    def _enters(self, number: int) -> int:
        return self._regions(number) + (number == self._layout.parts - 1)

    def _expert_layers(self, number: int) -> list[int]:
        return self._model.experts.layers_of(self._cut[number]) if self._model.experts else []

    def _to_experts(self, phase: str, number: int) -> list[RepeatedCall]:
        """List the calls of experts in one pass of a micro-batch."""
        layers = len(self._expert_layers(number))
        return list(list_expert_calls(self._model, self._train, self._layout, phase, layers))

    def _crossings(self, phase: str, summed: int, gathered: int) -> list[RepeatedCall]:
        """List the sums over the tensor-parallel group, and the all-gathers of sequence parallelism."""
        if self._layout.tp == 1:
            return []
        kind, spread = ("ACT" if phase == "FORWARD" else "GRAD"), self._train.sequence_parallel
        n, width = self._tokens * self._model.hidden, self._widths["activations"]
        channel = ("SP" if spread else "TP", phase, kind)
        calls = [(PredictedCall(channel, "reduce-scatter" if spread else "all-reduce", n, width, "tp"), summed)]
        calls += [(PredictedCall(channel, "all-gather", n, width, "tp"), gathered)] if spread else []
        return [(call, times) for call, times in calls if times]

    def _grid_forward(self, number: int) -> list[RepeatedCall]:
        grid, rows, last = self._layout.grid, self._tokens, number == self._layout.parts - 1
        calls = self._statistics(
            [grids.describe_norm_forward(grid, rows, self._model)], 2 * len(self._cut[number]) + last
        )
        for layer, times in self._grid_layers(number):
            calls += self._moves(grids.list_forward_moves(grid, layer), times)
        return calls + self._statistics(grids.list_loss_statistics(grid, rows), int(last))

    def _grid_backward(self, number: int) -> list[RepeatedCall]:
        grid, rows, layers = self._layout.grid, self._tokens, len(self._cut[number])
        calls: list[RepeatedCall] = []
        if self._again:
            calls += self._statistics([grids.describe_norm_forward(grid, rows, self._model)], 2 * layers)
            for layer in grids.list_block_products(rows, self._model):
                calls += self._moves(grids.list_forward_moves(grid, layer), layers)
        for layer, times in self._grid_layers(number):
            calls += self._moves(grids.list_backward_moves(grid, layer), times)
        last = number == self._layout.parts - 1
        return calls + self._statistics([grids.describe_norm_backward(grid, rows, self._model)], 2 * layers + last)

    def _grid_layers(self, number: int) -> list[tuple[grids.GridProduct, int]]:
        """List the products of a part on a tensor grid, each with its number of repetitions."""
        rows, model = self._tokens, self._model
        calls = [(grids.make_lookup(rows, model), 1)] if number == 0 else []
        calls += [(layer, len(self._cut[number])) for layer in grids.list_block_products(rows, model)]
        return calls + ([(grids.make_head(rows, model), 1)] if number == self._layout.parts - 1 else [])

    def _moves(self, sends: list[grids.MatrixMove], times: int) -> list[RepeatedCall]:
        grid = self._layout.grid
        calls = []
        for traffic, operation, held in sends:
            axis = traffic[3]
            width = self._widths[find_content(traffic) or ""]
            calls.append((PredictedCall(traffic, operation, grid.sizes[axis] * held, width, axis), times))
        return calls

    def _statistics(self, statistics: list[grids.Statistic], times: int) -> list[RepeatedCall]:
        return [
            (PredictedCall(traffic, operation, elements, self._exact, "".join(axes)), times)
            for traffic, operation, axes, elements in statistics
            if times
        ]

    def activations(self, number: int) -> PredictedCall | None:
        """Return the message that a part sends to the next part, or None for the last part."""
        return self._boundary(("PP", "FORWARD", "ACT")) if number < self._layout.parts - 1 else None

    def gradients_back(self, number: int) -> PredictedCall | None:
        """Return the message that a part sends to the previous part, or None for the first part."""
        return self._boundary(("PP", "BACKWARD", "GRAD")) if number else None

    def header(self, number: int) -> PredictedCall | None:
        """Return the header (micro-batch, version) that precedes an activation.

        The result is None in a pipeline with a flush, and for the last part.
        """
        if self._train.schedule not in UNFLUSHED or number == self._layout.parts - 1:
            return None
        return PredictedCall(("EXACT", "FORWARD", "ACT"), "send", 2, 8, "pp")

    def _boundary(self, channel: Traffic) -> PredictedCall:
        n = self._tokens * self._model.hidden // self.spread
        return PredictedCall(channel, "send", n, self._widths["activations"], "pp")

    @cached_property
    def spread(self) -> int:
        """Number of ranks that each hold a different part of the residual stream."""
        if self._layout.tensor == "1d":
            return self._layout.tp if self._train.sequence_parallel else 1
        grid = self._layout.grid
        return grid.count(grid.stream.rows) * grid.count(grid.stream.columns)

    def gathered_forward(self, bucket: PredictedBucket) -> RepeatedCall | None:
        """Return the ZeRO-3 gathers of a bucket in the forward pass of one micro-batch, or None below stage 3."""
        if self._train.zero < 3:
            return None
        channel, group = ("ZERO", "FORWARD", "PARAM"), _holders(bucket)
        elements = bucket.sent or bucket.length
        return PredictedCall(channel, "all-gather", elements, self._widths["parameters"], group), bucket.gathers

    def gathered_backward(self, bucket: PredictedBucket) -> RepeatedCall | None:
        """Return the ZeRO-3 gather of a bucket in the backward pass of one micro-batch, or None below stage 3.

        With a copy of the weights on each node, ranks gather within the node.
        """
        if self._train.zero < 3:
            return None
        channel, group = ("ZERO", "BACKWARD", "PARAM"), "node" if self._node_ranks else _holders(bucket)
        return PredictedCall(channel, "all-gather", bucket.sent or bucket.length, self._widths["parameters"], group), 1

    def reductions(self, bucket: PredictedBucket) -> list[PredictedCall]:
        """List the reductions of a bucket's gradients over the replicas.

        The reductions run once per step, or once per micro-batch at ZeRO stages 2 and 3. After the variance of 1-bit
        Adam is frozen, momenta are reduced instead of gradients.
        """
        channel = ("DP", "STEP", "OPTIM") if self._frozen else ("DP", "BACKWARD", "GRAD")
        width = self._exact if self._frozen else self._widths["gradients"]
        operation = "reduce-scatter" if self._train.zero else "all-reduce"
        group = _holders(bucket)
        if self._low_rank and not bucket.width and (sizes := count_factors(bucket.shapes, self._low_rank)):
            return [PredictedCall(channel, "all-reduce", elements, width, group) for elements in sizes]
        if counts := self.guess_widths(bucket):
            parts = self._sizes[group][0] if self._train.zero else 1
            levels = PredictedCall(
                ("EXACT", "BACKWARD", "GRAD"), "all-reduce", parts * counts.groups, LEVEL_BYTES, group
            )
            codecs = name_codecs(self._mixed_widths[0])
            messages = zip(counts.elements, codecs, strict=True)
            return [levels] + [
                PredictedCall(channel, operation, parts * elements, width, group, codec)
                for elements, codec in messages
                if elements
            ]
        return [PredictedCall(channel, operation, bucket.sent or bucket.length, width, group)]

    def guess_widths(self, bucket: PredictedBucket) -> WidthCounts | None:
        """Return typical numbers of super-groups for each width in a piece of a bucket, or None without mixed widths.

        In a run, these numbers depend on the gradients. The total number of message bytes does not depend on these
        numbers.
        """
        codec, bits = self._mixed_widths
        size = self._sizes[_holders(bucket)][0]
        if not bits or self._frozen or size == 1:
            return None
        scattered = self._train.zero > 0
        budget = make_budget(bucket.length // (size if scattered else 1), codec, bits, scattered=scattered)
        return budget.guess() if budget else None

    def end(self) -> list[RepeatedCall]:
        """List the calls after the last backward pass and the reductions.

        These calls sum the gradients of tied weights and of replicated parameters, compute the gradient norm, and send
        updated weights back to the replicas.
        """
        calls: list[RepeatedCall] = []
        owned = sum(count * self._owned(bucket).size for bucket, count in self.buckets if bucket.tied)
        if owned:
            calls.append(
                (PredictedCall(("PP", "STEP", "GRAD"), "all-reduce", owned, self._widths["gradients"], "ends"), 1)
            )
        calls += [(self._summands(bucket), count) for bucket, count in self.buckets if bucket.summands]
        if self._train.schedule not in UNFLUSHED:
            calls.append((PredictedCall(("EXACT", "STEP", "OPTIM"), "all-gather", self._layout.ranks, 8, "world"), 1))
        each = [bucket for bucket, _ in self.buckets]
        calls += list_choice_calls(each, self._model, self._train, self._layout, updates=self._updates)
        if self._train.zero in (1, 2):
            width = self._widths["parameters"]
            for bucket, count in self.buckets:
                elements = bucket.given or bucket.length
                gathered = PredictedCall(("ZERO", "STEP", "PARAM"), "all-gather", elements, width, _holders(bucket))
                calls.append((gathered, count))
        return calls

    def _summands(self, bucket: PredictedBucket) -> PredictedCall:
        """Return the call that sums gradients over the ranks that hold the same parameters.

        With sequence parallelism, these parameters are norms, biases of row layers and learned positions. On a tensor
        grid, they are the parameters applied to a rank's own rows. In mode 2.5d, they include the weights, whose
        gradients are summed over the depth.
        """
        axes, piece = bucket.summands, self._owned(bucket)
        n = max(min(piece.stop, bucket.filled) - piece.start, 0)
        prefix = ("TP" if is_summed_by_channel(axes) else "EXACT", "BACKWARD", "GRAD")
        if self._layout.tensor == "1d":
            return PredictedCall(prefix, "all-reduce", n, self._exact, "tp")
        channel: Traffic = (*prefix, "".join(axes))
        width = self._widths[find_content(channel) or ""] if is_summed_by_channel(axes) else self._exact
        return PredictedCall(channel, "all-reduce", n, width, "".join(axes))

    def _owned(self, bucket: PredictedBucket) -> ElementRange:
        """Return the elements that this rank updates."""
        if not self._train.zero:
            return ElementRange(0, bucket.length)
        size, index = self._sizes[_holders(bucket)]
        piece = bucket.length // size  # buckets are padded so that all pieces are equal
        return ElementRange(index * piece, (index + 1) * piece)


def _holders(bucket: PredictedBucket) -> str:
    """Return the group of ranks that hold the same bucket."""
    return "edp" if bucket.ep > 1 else "dp"
