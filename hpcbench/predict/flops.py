"""Parameters and floating-point operations of a model, from published closed forms. Pure.

The closed forms describe dense models. `BlockShape` adapts the number of weights of a GPT layer to grouped queries,
gated MLPs and other widths. In an expert layer, the router and the experts' MLPs replace the MLP. The operations of
experts are counted per row. A row is one token for one expert. Model FLOPs count only rows that an expert keeps,
without dropped tokens. Hardware FLOPs count all rows that experts compute, including empty slots.
"""

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from hpcbench.contract.training import Model

if TYPE_CHECKING:
    from typing_extensions import Unpack


class BlockShape(NamedTuple):
    """Sizes of a layer, which may differ from the sizes of a GPT layer. None selects the GPT size."""

    kv_width: int | None = None
    """Total number of key features, which is less than the hidden size if queries are grouped."""
    mlp_width: int | None = None
    """Intermediate width of the MLP."""
    gated: bool = False
    """Whether the MLP has a gate, which is a third matrix."""
    bias: bool = True
    """Whether linear layers have biases."""
    norm_bias: bool = True
    """Whether norms have biases."""

    def count_attention_weights(self, hidden: int) -> int:
        """Return the number of elements in the attention matrices."""
        return 2 * hidden**2 + 2 * hidden * (self.kv_width or hidden)

    def count_mlp_weights(self, hidden: int, width: int | None = None) -> int:
        """Return the number of matrix elements of an MLP, or of an expert with a different width."""
        return (3 if self.gated else 2) * hidden * (width or self.mlp_width or 4 * hidden)

    def count_mlp_parameters(self, hidden: int, width: int | None = None) -> int:
        """Return the number of parameters of an MLP, or of an expert with a different width."""
        middle = width or self.mlp_width or 4 * hidden
        biases = (2 if self.gated else 1) * middle + hidden
        return self.count_mlp_weights(hidden, width) + (biases if self.bias else 0)

    def count_norm_parameters(self, hidden: int) -> int:
        """Return the number of parameters of a norm."""
        return (2 if self.norm_bias else 1) * hidden

    def count_weights(self, hidden: int) -> int:
        """Return the number of matrix elements of a layer: ``12 h^2`` for a GPT."""
        return self.count_attention_weights(hidden) + self.count_mlp_weights(hidden)

    def count_parameters(self, hidden: int) -> int:
        """Return the number of parameters of a layer: ``12 h^2 + 13 h`` for a GPT."""
        attention = self.count_attention_weights(hidden)
        if self.bias:
            attention += 2 * hidden + 2 * (self.kv_width or hidden)
        return attention + self.count_mlp_parameters(hidden) + 2 * self.count_norm_parameters(hidden)


GPT = BlockShape()


def describe_block(model: Model) -> BlockShape:
    """Return the sizes of the model's layers, for the formulas that count operations and parameters."""
    return BlockShape(
        kv_width=model.groups * model.head_dim,
        mlp_width=model.middle,
        gated=model.gated,
        bias=model.bias,
        norm_bias=model.norm == "layernorm",
    )


class ExpertShape(NamedTuple):
    """Experts of a model."""

    layers: int
    """Number of layers with experts."""
    held: int
    """Number of experts per layer, including shared experts."""
    shared: int
    """Number of shared experts, which process all tokens."""
    choices: int
    """Number of experts that the router chooses from."""
    chosen: int
    """Rows per sequence that a layer's router selects."""
    places: int | None
    """Expert slots of a layer per sequence, or None if the number is unlimited."""
    padded: bool
    """Whether experts compute all of their slots, with zeros in empty slots."""
    routers: int
    """Number of ranks that route the same tokens."""
    kept_rows: float | None = None
    """Rows per sequence that a layer's experts kept, as a mean over layers, or None before a run."""
    width: int | None = None
    """Intermediate width of an expert, or None for the MLP's width."""
    shared_width: int | None = None
    """Intermediate width of the shared expert, or None for the width of an expert."""

    @property
    def needed(self) -> float:
        """Rows per sequence that a layer keeps, or the maximum before a run."""
        if self.kept_rows is not None:
            return self.kept_rows
        return self.chosen if self.places is None else min(self.chosen, self.places)

    @property
    def executed(self) -> float:
        """Rows per sequence that a layer computes."""
        return self.places if self.padded and self.places is not None else self.needed

    def count_further_parameters(self, hidden: int, block: BlockShape) -> int:
        """Return the number of parameters in addition to those of a dense model."""
        experts = (self.held - self.shared) * block.count_mlp_parameters(hidden, self.width)
        experts += self.shared * block.count_mlp_parameters(hidden, self.shared_width or self.width)
        return self.layers * (experts - block.count_mlp_parameters(hidden) + self.choices * hidden)

    def count_further_flops(self, *, hidden: int, seq_len: int, executed: bool, block: BlockShape) -> float:
        """Return the operations in one forward pass of a sequence, minus the operations of a dense model."""
        rows, routers = (self.executed, self.routers) if executed else (self.needed, 1)
        mlps = rows * block.count_mlp_weights(hidden, self.width)
        mlps += self.shared * seq_len * block.count_mlp_weights(hidden, self.shared_width or self.width)
        mlps -= seq_len * block.count_mlp_weights(hidden)
        return self.layers * 2 * (mlps + routers * seq_len * self.choices * hidden)


DENSE = ExpertShape(layers=0, held=0, shared=0, choices=0, chosen=0, places=None, padded=False, routers=1)


def has_layer_recompute(recompute: str | int) -> bool:
    """Return whether each layer's forward pass runs twice, due to full or grouped recomputation."""
    return bool(recompute) and recompute not in ("none", "selective")


class _Sizes(TypedDict):
    layers: int
    hidden: int
    vocab: int
    seq_len: int


class ModelSizes(_Sizes, total=False):
    """Sizes of a model that determine its operations and parameters. The default is a dense GPT."""

    experts: ExpertShape
    block: BlockShape


def count_parameters(*, positions: str, tied: bool, **sizes: "Unpack[ModelSizes]") -> int:
    """Return the number of parameters.

    With learned positions and a tied head, this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper omits.
    """
    hidden, block = sizes["hidden"], sizes.get("block", GPT)
    embedding = sizes["vocab"] * hidden * (1 if tied else 2)
    embedding += sizes["seq_len"] * hidden if positions == "learned" else 0
    further = sizes.get("experts", DENSE).count_further_parameters(hidden, block)
    layers = sizes["layers"] * block.count_parameters(hidden)
    return layers + embedding + block.count_norm_parameters(hidden) + further


class _Forward(NamedTuple):
    """Operations in one forward pass of a sequence: all blocks, the core attention in them, and the head."""

    blocks: float
    core: float
    head: float


def _count_forward(sizes: ModelSizes, *, executed: bool) -> _Forward:
    layers, hidden, seq_len = sizes["layers"], sizes["hidden"], sizes["seq_len"]
    block = sizes.get("block", GPT)
    core = 4 * layers * seq_len**2 * hidden
    blocks: float = 2 * seq_len * layers * block.count_weights(hidden) + core
    blocks += sizes.get("experts", DENSE).count_further_flops(
        hidden=hidden, seq_len=seq_len, executed=executed, block=block
    )
    return _Forward(blocks, core, 2 * seq_len * hidden * sizes["vocab"])


def count_model_flops(**sizes: "Unpack[ModelSizes]") -> float:
    """Return the forward and backward operations of one sequence, without recomputation and dropped tokens.

    ``6 s (l w + h V) + 12 s^2 l h`` with w weights per layer: ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` for a GPT (arXiv
    2104.04473, section 5.1, without recomputation). As is usual in the literature, masked positions are counted.
    """
    forward = _count_forward(sizes, executed=False)
    return 3 * (forward.blocks + forward.head)


def count_hardware_flops(*, recompute: str | int, **sizes: "Unpack[ModelSizes]") -> float:
    """Return the operations executed for one sequence, including recomputation and empty expert slots.

    With full recomputation, the forward pass of each layer runs twice: ``8 s l w + 6 s h V + 16 s^2 l h``, for a GPT
    ``96 s l h^2 (1 + s/(6h) + V/(16 l h))`` (arXiv 2104.04473, equation 3). With selective recomputation, core
    attention counts twice: for a GPT, ``72 s l h^2 (1 + s/(3h) + V/(12 l h))``, about ``1 + s/(6h)`` times the
    operations of the model (arXiv 2205.05198, appendix A). This form is used for the hardware FLOP/s of that paper,
    with which other papers compare their results. The forward pass of core attention alone, ``4 s^2 h`` per layer, is a
    third of the added operations.

    Parameters
    ----------
    recompute
        Setting of the run: ``none`` (or 0), ``selective``, ``full``, or a number of layers that are recomputed
        together, which costs the same as ``full``.
    """
    forward = _count_forward(sizes, executed=True)
    if has_layer_recompute(recompute):
        return 4 * forward.blocks + 3 * forward.head
    return 3 * (forward.blocks + forward.head + (forward.core if recompute == "selective" else 0))


def count_neox_flops(*, recompute: str | int, **sizes: "Unpack[ModelSizes]") -> float:
    """Return the operations executed for one sequence according to GPT-NeoX's formula.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 if layers are recomputed, else 3 (``megatron/logging.py``);
    the w weights of a layer replace ``12 h^2``. The last term is exact only for f = 4. Without recomputation, the
    formula counts three quarters of the logits. GPT-NeoX does not support selective recomputation, which is treated as
    no recomputation here.
    """
    forward = _count_forward(sizes, executed=True)
    return (4 if has_layer_recompute(recompute) else 3) * (forward.blocks + 3 * forward.head / 4)
