"""Message bytes of a training step, as integers that equal the engine's counters. Pure.

A collective counts what its bandwidth-optimal form sends, as the MPI library's own are counted: over t ranks and n
bytes (t-1) n for a reduce-scatter and for an all-gather, twice that for an all-reduce, each rank by the piece that it
owns. Two-shot sends as much in all, but cuts the pieces of an all-reduce by blocks of a codec: there the sum over the
ranks is what equals. Hierarchical algorithms send more within nodes, recursive doubling sends whole vectors.
"""

from collections import Counter

from hpcbench.contract.grid import by_channel
from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import all_gather_bytes, all_reduce_bytes, length, reduce_scatter_bytes, shards
from hpcbench.contract.traffic import Traffic, content_of
from hpcbench.contract.training import Model, Train
from hpcbench.predict import grid as grids
from hpcbench.predict import zero
from hpcbench.predict.buckets import Bucket, buckets_of, itemsize

_WIDTHS = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a value."""

Key = Traffic
"""Dimension, phase and kind of a channel, on a tensor grid with its axis."""


def step_bytes(
    model: Model, train: Train, layout: Layout, rank: int, *, updates: int = 0, node_ranks: int | None = None
) -> dict[Key, int]:
    """What one rank sends in a step, by channel; channels that carry nothing are left out.

    Schedules do not matter: each has the same messages in another order. Evaluations and checkpoints belong to no step.
    A scheme with a codec that does not carry overflows makes one more exact sum a step, as long as the norm's.

    Parameters
    ----------
    model, train, layout
        The run's model, settings and layout.
    rank
        In the world.
    updates
        Number of steps that the optimizer took before this one. It tells 1-bit Adam whether its variance is frozen.
    node_ranks
        Neighbours of a data-parallel group that share a node, for `node_copy`; they divide the group. None for all.
    """
    step = _Step(model, train, layout, rank)
    frozen = train.freeze_step is not None and updates >= train.freeze_step
    sent = Counter[Key]()
    for part in (
        *((step.tensor_parallel(), step.statistics()) if layout.tensor == "1d" else (step.on_grid(),)),
        step.boundaries(),
        step.replicas(node_ranks if train.node_copy else None, frozen=frozen),
        step.tied(),
        step.summands(),
        {("EXACT", "STEP", "OPTIM"): 8 * (layout.ranks - 1)},  # the gradient's norm
    ):
        sent.update(part)
    return dict(+sent)


def all_ranks_bytes(
    model: Model, train: Train, layout: Layout, *, updates: int = 0, node_ranks: int | None = None
) -> dict[Key, int]:
    """What all ranks send in a step: the sum of `step_bytes`."""
    total = Counter[Key]()
    for rank in range(layout.ranks):
        total.update(step_bytes(model, train, layout, rank, updates=updates, node_ranks=node_ranks))
    return dict(total)


class _Step:
    """One rank's place, and what it holds."""

    def __init__(self, model: Model, train: Train, layout: Layout, rank: int) -> None:
        self.model, self.train, self.layout = model, train, layout
        self.stage, self.replica, self.index = layout.coordinates(rank)
        self.parts = range(self.stage, layout.parts, layout.pp)
        cut = layout.layers_of(model.layers)
        self.layers = sum(len(cut[number]) for number in self.parts)
        self.buckets: list[Bucket] = buckets_of(model, train, layout, rank)
        self.micro_batches = train.global_batch // layout.dp // train.micro_batch
        self.tokens = train.micro_batch * train.seq_len
        self.exact = itemsize(train)
        self.widths = {content: _WIDTHS[name] for content, name in train.message_formats.items()}
        """Bytes of a value in a message, by what it holds."""

    @property
    def first(self) -> bool:
        return self.stage == 0

    @property
    def last(self) -> bool:
        return self.stage == self.layout.pp - 1

    def pieces(self, n: int, width: int) -> list[int]:
        """Bytes of each tensor-parallel rank's piece of `n` values."""
        return _pieces(n, self.layout.tp, width)

    def tensor_parallel(self) -> dict[Key, int]:
        """The residual stream's traffic (arXiv 1909.08053, section 3; sequence parallelism: 2205.05198, section 4.2.2).

        Forward it leaves two regions a layer and the embedding, and enters two regions a layer and the head. Leaving
        sums forward, entering backward; spread by positions, each is a reduce-scatter, and the other way an all-gather.
        What is recomputed goes through its regions once more.
        """
        leaves, enters = 2 * self.layers + self.first, 2 * self.layers + self.last
        again = 2 * self.layers if self.train.recompute not in ("none", "selective") else 0
        pieces = self.pieces(self.tokens * self.model.hidden, self.widths["activations"])
        if self.train.sequence_parallel:
            summed, gathered = reduce_scatter_bytes(pieces, self.index), all_gather_bytes(pieces, self.index)
        else:
            summed, gathered = all_reduce_bytes(pieces, self.index), 0
        dimension = "SP" if self.train.sequence_parallel else "TP"
        return {
            (dimension, "FORWARD", "ACT"): self.micro_batches
            * ((leaves + again) * summed + (enters + again) * gathered),
            (dimension, "BACKWARD", "GRAD"): self.micro_batches * (enters * summed + leaves * gathered),
        }

    def statistics(self) -> dict[Key, int]:
        """Traffic of the softmax over a split vocabulary: largest logits; sums of exponentials with target logits."""
        sent = sum(all_reduce_bytes(self.pieces(each * self.tokens, self.exact), self.index) for each in (1, 2))
        return {("EXACT", "FORWARD", "ACT"): self.micro_batches * sent if self.last else 0}

    def on_grid(self) -> dict[Key, int]:
        """Traffic of all products, norms and the loss on a tensor grid, axis by axis."""
        grid, again = self.layout.grid, self.train.recompute not in ("none", "selective")
        there, back, exact = Counter[Key](), Counter[Key](), Counter[Key]()
        block, rows = grids.block(self.tokens, self.model.hidden), self.tokens
        others = [grids.look_up(rows, self.model)] * self.first + [grids.head(rows, self.model)] * self.last
        for layer, forwards, backwards in (
            *((layer, self.layers * (1 + again), self.layers) for layer in block),
            *((layer, 1, 1) for layer in others),
        ):
            for key, elements in grids.forward_elements(grid, layer).items():
                there[key] += forwards * elements
            for key, elements in grids.backward_elements(grid, layer).items():
                back[key] += backwards * elements
        norm = grids.norm_bytes(grid, self.index, rows, self.exact)
        norms = 2 * self.layers + self.last
        for key, nbytes in norm.forward.items():
            exact[key] += (norms + 2 * self.layers * again) * nbytes
        for key, nbytes in norm.backward.items():
            exact[key] += norms * nbytes
        if self.last:
            exact.update(grids.loss_bytes(grid, self.index, rows, self.exact))
        there.update(back)
        sent = {key: elements * self.widths[content_of(key) or ""] for key, elements in there.items()}
        return {key: self.micro_batches * nbytes for key, nbytes in (*sent.items(), *exact.items())}

    def boundaries(self) -> dict[Key, int]:
        """Each part but the last sends its activations on, each but the first their gradients back."""
        stream, grid = self.layout.grid.stream, self.layout.grid
        spread = self.layout.tp if self.train.sequence_parallel else 1
        if grid.mode != "1d":
            spread = grid.count(stream.rows) * grid.count(stream.columns)
        message = self.micro_batches * (self.tokens * self.model.hidden // spread) * self.widths["activations"]
        return {
            ("PP", "FORWARD", "ACT"): message * sum(number < self.layout.parts - 1 for number in self.parts),
            ("PP", "BACKWARD", "GRAD"): message * sum(number > 0 for number in self.parts),
        }

    def replicas(self, node_ranks: int | None, *, frozen: bool) -> dict[Key, int]:
        """Gradients and weights over data-parallel ranks; once 1-bit Adam's variance is `frozen`, momenta."""
        sent = zero.message_bytes(
            self.train.zero,
            [bucket.length for bucket in self.buckets],
            self.layout.dp,
            gradient=self.exact if frozen else self.widths["gradients"],
            parameter=self.widths["parameters"],
            micro_batches=self.micro_batches,
            gathers=[bucket.gathers for bucket in self.buckets],
            node_ranks=node_ranks,
        )
        return {("DP", "STEP", "OPTIM"): sent["DP", "BACKWARD", "GRAD"]} if frozen else sent

    def tied(self) -> dict[Key, int]:
        """The two copies' gradients are summed over first and last stage, each owner its piece."""
        owned = sum(length(self.owned(bucket)) for bucket in self.buckets if bucket.tied)
        return {("PP", "STEP", "GRAD"): all_reduce_bytes(_pieces(owned, 2, self.widths["gradients"]), int(self.last))}

    def summands(self) -> dict[Key, int]:
        """Gradients of parameters that ranks hold alike, if each rank has a summand.

        Under sequence parallelism these are norms, biases of rows and learned positions. On a tensor grid they are
        those of the rank's own rows, and of 2.5d's weights over depth.
        """
        grid, sent = self.layout.grid, Counter[Key]()
        for bucket in self.buckets:
            if axes := bucket.summands:
                owned = self.owned(bucket)
                n = max(min(owned.stop, bucket.filled) - owned.start, 0)
                words = ("TP" if by_channel(axes) else "EXACT", "BACKWARD", "GRAD")
                key: Key = words if grid.mode == "1d" else (*words, "".join(axes))
                width = self.widths[content_of(key) or ""] if by_channel(axes) else self.exact
                sent[key] += all_reduce_bytes(_pieces(n, grid.count(axes), width), grid.index(self.index, axes))
        return sent

    def owned(self, bucket: Bucket) -> slice:
        """The elements that this rank updates."""
        return shards(bucket.length, self.layout.dp)[self.replica] if self.train.zero else slice(0, bucket.length)


def _pieces(n: int, ranks: int, width: int) -> list[int]:
    return [length(piece) * width for piece in shards(n, ranks)]
