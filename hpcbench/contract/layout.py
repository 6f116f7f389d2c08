"""Sizes of the parallel dimensions, and their constraints."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from hpcbench.contract.expert_fit import find_expert_misfit
from hpcbench.contract.grid import Grid, Mode, make_grid
from hpcbench.contract.grid_fit import find_grid_misfit
from hpcbench.contract.section import Count, Misfit, Section
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.sparse_fit import find_sparse_misfit
from hpcbench.contract.training import Model, Train
from hpcbench.features.rules import RULES

Context = Literal["ring", "rsa", "ulysses"]


def _or_auto(stages: Any, as_list: ValidatorFunctionWrapHandler) -> Any:
    """Validate `stages` as ``auto`` or as a list. Errors in a list are reported for its items."""
    return stages if stages == "auto" else as_list(stages)


Stages = Annotated[list[Count], WrapValidator(_or_auto, json_schema_input_type=list[Count] | Literal["auto"])]


class Partition(Section):
    """Partition of the model by tensor and pipeline parallelism, and of the samples by context parallelism."""

    tp: Count = Field(
        1, description="Tensor-parallel size; with tensor 1d it must divide model.heads and model.kv_heads."
    )
    tensor: Mode = Field(
        "1d",
        description="How tensor parallelism cuts the matrices: 1d along one side (Megatron-LM), 2d over q x q ranks "
        "(Optimus), 2.5d over depth x q x q (Tesseract), 3d over q x q x q; tp is their product.",
    )
    depth: Count = Field(1, description="Depth of the grid of tensor 2.5d; tp is depth x q x q.")
    cp: Count = Field(1, description="Context-parallel size: number of ranks that share the positions of each sample.")
    context: Context = Field(
        "ring",
        description="Algorithm of attention over the ranks of cp. ring: keys and values travel around a ring; rsa: "
        "keys, then values, for whole rows of scores; ulysses: an all-to-all exchanges positions for heads.",
    )
    pp: Count = Field(1, description="Number of pipeline stages; at most model.layers.")
    ep: Count = Field(
        1,
        description="Expert-parallel size: number of neighbouring replicas that each layer's experts are sharded "
        "over; it must divide dp and model.experts.count.",
    )
    chunks: Count = Field(
        1, description="Parts of the model that each pipeline stage holds, for train.schedule interleaved."
    )
    stages: Stages = Field(
        default_factory=list,
        description="Layers of each of the pp x chunks parts, first to last; by default as even as possible. The head "
        "costs as much as vocab / (12 hidden) layers of a GPT, the embedding almost nothing: auto gives the last part "
        "fewer layers to balance that. `hpcbench predict --partition` balances measured times.",
    )

    @property
    def grid(self) -> Grid:
        """Grid of the tensor-parallel ranks. `find_model_misfit` checks that the grid exists."""
        return make_grid(self.tensor, self.tp, self.depth)

    @property
    def parts(self) -> int:
        """Number of pipeline parts of the model. Stage r holds parts r, r + pp, r + 2 pp, and so on."""
        return self.pp * self.chunks

    @property
    def automatic(self) -> bool:
        """Whether `stages` is ``auto``, which is allowed only in studies."""
        return isinstance(self.stages, str)

    def fits(self, layers: int) -> bool:
        """Return whether `stages` divides `layers` layers into the parts of the layout."""
        return not self.automatic and len(self.stages) == self.parts and sum(self.stages) == layers

    def layers_of(self, layers: int) -> list[range]:
        """Return the layers of each part.

        Embedding and head are not counted. The embedding is a table look-up, and the head takes as long as
        ``V / (12 h)`` layers in the last part. By default, parts differ by at most one layer, and longer parts come
        first. If the head takes longer than a layer, `stages` can assign fewer layers to the last part.

        Raises
        ------
        ValueError
            `stages` does not match the number of layers or parts.
        """
        if not self.stages:
            return [range(piece.start, piece.stop) for piece in cut_evenly(layers, self.parts)]
        if not self.fits(layers):
            raise ValueError(f"layout.stages: {self.stages} must list {self.parts} parts with {layers} layers in all")
        ends = [sum(self.stages[: k + 1]) for k in range(self.parts)]
        return [range(end - count, end) for end, count in zip(ends, self.stages, strict=True)]


class _Replicas(Section):
    """Parallel dimension that `Layout` adds to `Partition`. In files, fields of the second base class come first."""

    dp: Count = Field(1, description="Data-parallel size.")


class Layout(Partition, _Replicas):
    """Sizes of the mesh axes. Their product is the number of ranks."""

    @property
    def ranks(self) -> int:
        """Number of ranks of the run."""
        return self.replicas * self.tp * self.pp

    @property
    def replicas(self) -> int:
        """Number of ranks that hold the same part of the model and average its gradients.

        The ranks process different samples, or different positions of the same samples.
        """
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Number of ranks that hold the same experts and sum their gradients."""
        return self.replicas // self.ep

    def expert_coordinates(self, replica: int) -> tuple[int, int]:
        """Return a replica's index among the ranks with the same experts, and its index in its expert-parallel group.

        The ranks of an expert-parallel group process the same positions of neighboring samples.
        """
        sample, part = divmod(replica, self.cp)
        return sample // self.ep * self.cp + part, sample % self.ep

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's stage, replica, and index in its tensor-parallel group.

        The last coordinate varies fastest, so that tensor-parallel groups stay within a node. Replicas that share
        samples are neighbors: replica ``d * cp + c`` holds part c of the positions.
        """
        return rank // (self.tp * self.replicas), rank // self.tp % self.replicas, rank % self.tp


def find_model_misfit(model: Model, train: Train, cut: Partition) -> Misfit | None:
    """Return the first partition constraint that the settings violate, or None if they satisfy all."""
    if model.hidden % model.heads:
        return Misfit(
            ("model", "heads"),
            f"{model.heads} does not divide model.hidden {model.hidden}: use one of {_divisors(model.hidden)}",
        )
    if model.heads % model.groups:
        return Misfit(
            ("model", "kv_heads"),
            f"{model.kv_heads} does not divide model.heads {model.heads}: use one of {_divisors(model.heads)}",
        )
    if misfit := find_grid_misfit(model, train, cut.tensor, cut.tp, cut.depth):
        return misfit
    if misfit := find_expert_misfit(model, train, ep=cut.ep, tensor=cut.tensor, cp=cut.cp):
        return misfit
    if misfit := find_sparse_misfit(model, train, cut.tensor):
        return misfit
    for rules in RULES:
        if misfit := rules.misfit(model, train, cut.tp, cut.tensor):
            return misfit
    if cut.tensor == "1d" and model.heads % cut.tp:
        return Misfit(
            ("layout", "tp"),
            f"{cut.tp} does not divide model.heads {model.heads}: use one of {_divisors(model.heads)}",
        )
    if cut.tensor == "1d" and model.groups % cut.tp:
        return Misfit(
            ("layout", "tp"),
            f"{cut.tp} does not divide model.kv_heads {model.groups}, so ranks would share heads of keys and values: "
            f"use one of {_divisors(model.groups)}",
        )
    for name, width in (("mlp_width", model.middle), ("experts", math.gcd(model.expert_middle, model.shared_middle))):
        if cut.tensor == "1d" and width % cut.tp and (name == "mlp_width" or model.experts):
            return Misfit(
                ("model", name),
                f"width {width} cannot be divided into layout.tp {cut.tp} equal parts: use a multiple of {cut.tp}, or "
                "another layout.tp",
            )
    if cut.cp > 1:
        if misfit := _context_misfit(model, train, cut):
            return misfit
    elif train.sequence_parallel and train.seq_len % cut.tp:
        above = -(-train.seq_len // cut.tp) * cut.tp
        return Misfit(
            ("train", "seq_len"),
            f"sequence_parallel cannot divide {train.seq_len} into layout.tp {cut.tp} equal parts: use {above}, or "
            "sequence_parallel: false",
        )
    if model.layers < cut.pp:
        return Misfit(
            ("layout", "pp"),
            f"{cut.pp} stages are more than model.layers {model.layers}: use at most {model.layers}",
        )
    if cut.chunks > 1 and cut.pp == 1:
        return Misfit(
            ("layout", "chunks"),
            f"{cut.chunks} chunks, but layout.pp is 1, and one stage has nothing to interleave: use chunks 1, or more "
            "stages",
        )
    product = f"pp x chunks = {cut.pp} x {cut.chunks} = {cut.parts} parts"
    if model.layers < cut.parts:
        return Misfit(
            ("layout", "chunks"),
            f"{product} are more than model.layers {model.layers}: use at most {model.layers // cut.pp}",
        )
    if cut.stages and not cut.automatic and not cut.fits(model.layers):
        return Misfit(
            ("layout", "stages"),
            f"{cut.stages} lists {len(cut.stages)} parts with {sum(cut.stages)} layers in all: list {product} with "
            f"model.layers {model.layers} in all",
        )
    if (train.schedule == "interleaved") != (cut.chunks > 1):
        return Misfit(
            ("train", "schedule"),
            f"{train.schedule} with layout.chunks {cut.chunks}: interleaved needs 2 chunks or more, and all other "
            "schedules need 1",
        )
    return None


def _context_misfit(model: Model, train: Train, cut: Partition) -> Misfit | None:
    """Return why context parallelism cannot split the samples, or None if it can.

    All ranks hold the same number of positions. Ring attention splits the positions into two pieces per rank. Ulysses
    requires whole heads per rank.
    """
    heads = model.groups // (cut.tp if cut.tensor == "1d" else cut.grid.count(cut.grid.inner.columns))
    if cut.context == "ulysses" and heads % cut.cp:
        return Misfit(
            ("layout", "cp"),
            f"context ulysses needs whole heads on each of {cut.cp} ranks, but there are {heads} heads: use one of "
            f"{_divisors(heads)}, or context ring",
        )
    spread = cut.tp if train.sequence_parallel else 1
    unit = math.lcm(1 if cut.context == "ulysses" else 2, spread) * cut.cp
    if train.seq_len % unit:
        pieces = f"layout.cp {cut.cp}" if spread == 1 else f"layout.cp x tp = {cut.cp} x {spread}"
        two = "" if cut.context == "ulysses" else " of two pieces each"
        return Misfit(
            ("train", "seq_len"),
            f"{train.seq_len} cannot be divided into {pieces} equal parts{two}: use "
            f"{-(-train.seq_len // unit) * unit}, or another layout.cp",
        )
    return None


def balance_stages(model: Model, train: Train, parts: int) -> list[int]:
    """Return the number of layers of each part, chosen to minimize the cost of the most expensive part.

    The last part includes the head. A layer with w weights takes ``2 s w + 4 s^2 h`` operations, and the head takes
    ``2 s h V`` (arXiv 2104.04473, section 5.1, where w is ``12 h^2``).
    """
    if parts == 1:
        return [model.layers]
    head = model.vocab / (model.layer_weights / model.hidden + 2 * train.seq_len)

    def largest(last: int) -> float:
        return max(last + head, -(-(model.layers - last) // (parts - 1)))

    last = min(range(model.layers // parts, 0, -1), key=largest)
    return [piece.stop - piece.start for piece in cut_evenly(model.layers - last, parts - 1)] + [last]


def find_batch_misfit(train: Train, layout: Layout) -> Misfit | None:
    """Return why the batch cannot be divided among the layout's replicas, or None if it can."""
    if layout.dp % layout.ep:
        return Misfit(
            ("layout", "ep"),
            f"{layout.ep} does not divide layout.dp {layout.dp}, the number of replicas that shard the experts: use "
            f"one of {_divisors(layout.dp)}",
        )
    part = train.micro_batch * layout.dp
    if train.global_batch % part:
        below = train.global_batch // part * part
        return Misfit(
            ("train", "global_batch"),
            f"{train.global_batch} is not a multiple of micro_batch x dp = {train.micro_batch} x {layout.dp} = {part}: "
            f"use {f'{below} or ' if below else ''}{below + part}",
        )
    if train.schedule == "interleaved" and train.global_batch // part % layout.pp:
        unit = part * layout.pp
        return Misfit(
            ("train", "global_batch"),
            f"{train.global_batch} is not a multiple of micro_batch x dp x pp = {train.micro_batch} x {layout.dp} x "
            f"{layout.pp} = {unit}, as schedule interleaved needs: use {-(-train.global_batch // unit) * unit}, or "
            "schedule 1f1b",
        )
    if train.schedule == "pipedream-2bw" and train.global_batch // part < layout.pp:
        return Misfit(
            ("train", "global_batch"),
            f"{train.global_batch} gives {train.global_batch // part} micro-batches per replica, but two versions of "
            f"the weights need at least {layout.pp} (layout.pp): use {part * layout.pp}, or schedule pipedream",
        )
    rows = layout.grid.samples
    if rows > 1 and train.eval_samples % (layout.dp * rows):
        return Misfit(
            ("train", "eval_samples"),
            f"{train.eval_samples} is not a multiple of dp x the grid's rows = {layout.dp} x {rows}: use "
            f"{-(-train.eval_samples // (layout.dp * rows)) * layout.dp * rows}",
        )
    if layout.ep > 1 and train.eval_samples % layout.dp:
        return Misfit(
            ("train", "eval_samples"),
            f"{train.eval_samples} is not a multiple of layout.dp {layout.dp}, as the exchange of tokens among "
            f"replicas needs: use {-(-train.eval_samples // layout.dp) * layout.dp}",
        )
    return None


def _divisors(number: int) -> str:
    divisors = [str(d) for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return ", ".join(divisors if len(divisors) <= 8 else [*divisors[:6], "...", divisors[-1]])
