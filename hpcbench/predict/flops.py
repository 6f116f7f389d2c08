"""Parameters and floating-point operations of a model, by published closed forms. Pure.

The forms are those of dense models. `BlockShape` replaces the weights of a GPT's layer by those of grouped queries,
gated MLPs and other widths. In a layer with experts, the operations of the MLP are replaced by those of the
router and of the experts' MLPs, counted by rows: a row is one token for one expert. The operations of the model count
only rows that an expert keeps, no dropped tokens. The executed operations count all rows that experts compute, with
empty places.
"""

from typing import NamedTuple

from hpcbench.contract.training import Model

MODEL_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(6h) + V/(12 l h)), arXiv 2104.04473 section 5.1"
NEOX_FORMULA = "GPT-NeoX: 24 f s l h^2 (1 + s/(6h) + V/(16 l h)), f = 4 with layers recomputed, else 3"
SELECTIVE_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(3h) + V/(12 l h)), arXiv 2205.05198 appendix A"
FULL_FORMULA = "Megatron-LM: 96 s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473 section 5.1"
OTHER_WEIGHTS = ", where the w weights of a layer replace 12 h^2"
"""Addition to a formula for layers that are not a GPT's."""


class BlockShape(NamedTuple):
    """Sizes of a layer that may differ from those of a GPT. None is the GPT's size."""

    kv_width: int | None = None
    """Number of features of all keys; fewer than hidden with grouped queries."""
    mlp_width: int | None = None
    """Width of the MLP's middle."""
    gated: bool = False
    """Whether the MLP has a gate, a third matrix."""
    bias: bool = True
    """Whether linear layers have biases."""
    norm_bias: bool = True
    """Whether norms have biases."""

    def count_attention_weights(self, hidden: int) -> int:
        """Return the number of elements in the matrices of attention."""
        return 2 * hidden**2 + 2 * hidden * (self.kv_width or hidden)

    def count_mlp_weights(self, hidden: int, width: int | None = None) -> int:
        """Return the number of elements in the matrices of an MLP, or of an expert of another width."""
        return (3 if self.gated else 2) * hidden * (width or self.mlp_width or 4 * hidden)

    def count_mlp_parameters(self, hidden: int, width: int | None = None) -> int:
        """Return the number of parameters of an MLP, or of an expert of another width."""
        middle = width or self.mlp_width or 4 * hidden
        biases = (2 if self.gated else 1) * middle + hidden
        return self.count_mlp_weights(hidden, width) + (biases if self.bias else 0)

    def count_norm_parameters(self, hidden: int) -> int:
        """Return the number of parameters of a norm."""
        return (2 if self.norm_bias else 1) * hidden

    def count_weights(self, hidden: int) -> int:
        """Return the number of elements in the matrices of a layer: ``12 h^2`` for a GPT."""
        return self.count_attention_weights(hidden) + self.count_mlp_weights(hidden)

    def count_parameters(self, hidden: int) -> int:
        """Return the number of parameters of a layer: ``12 h^2 + 13 h`` for a GPT."""
        attention = self.count_attention_weights(hidden)
        if self.bias:
            attention += 2 * hidden + 2 * (self.kv_width or hidden)
        return attention + self.count_mlp_parameters(hidden) + 2 * self.count_norm_parameters(hidden)


GPT = BlockShape()


def describe_block(model: Model) -> BlockShape:
    """Return the sizes of the model's layers, for the formulas of operations and parameters."""
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
    """Number of experts of a layer, with shared ones."""
    shared: int
    """Number of shared experts, which compute all tokens."""
    choices: int
    """Number of experts that the router chooses from."""
    chosen: int
    """Rows of one sequence that a layer's router chooses."""
    places: int | None
    """Rows of one sequence that a layer's experts have places for; None without a limit."""
    padded: bool
    """Whether experts compute all of their places, empty ones as zeros."""
    routers: int
    """Number of ranks that route the same tokens."""
    kept_rows: float | None = None
    """Rows of one sequence that a layer's experts kept, a mean over layers; None before a run."""
    width: int | None = None
    """Width of an expert's middle; None for that of the MLP."""
    shared_width: int | None = None
    """Width of the shared expert's middle; None for that of an expert."""

    @property
    def needed(self) -> float:
        """Rows of one sequence that a layer keeps; before a run, the largest number that it can keep."""
        if self.kept_rows is not None:
            return self.kept_rows
        return self.chosen if self.places is None else min(self.chosen, self.places)

    @property
    def executed(self) -> float:
        """Rows of one sequence that a layer computes."""
        return self.places if self.padded and self.places is not None else self.needed

    def count_further_parameters(self, hidden: int, block: BlockShape) -> int:
        """Return the number of parameters beyond those of a dense model."""
        experts = (self.held - self.shared) * block.count_mlp_parameters(hidden, self.width)
        experts += self.shared * block.count_mlp_parameters(hidden, self.shared_width or self.width)
        return self.layers * (experts - block.count_mlp_parameters(hidden) + self.choices * hidden)

    def count_further_flops(self, *, hidden: int, seq_len: int, executed: bool, block: BlockShape) -> float:
        """Return the operations of one forward pass of a sequence minus those of a dense model."""
        rows, routers = (self.executed, self.routers) if executed else (self.needed, 1)
        mlps = rows * block.count_mlp_weights(hidden, self.width)
        mlps += self.shared * seq_len * block.count_mlp_weights(hidden, self.shared_width or self.width)
        mlps -= seq_len * block.count_mlp_weights(hidden)
        return self.layers * 2 * (mlps + routers * seq_len * self.choices * hidden)


DENSE = ExpertShape(layers=0, held=0, shared=0, choices=0, chosen=0, places=None, padded=False, routers=1)


def has_layer_recompute(recompute: str | int) -> bool:
    """Return whether the forward pass of each layer runs twice, with full recomputation or by groups of layers."""
    return bool(recompute) and recompute not in ("none", "selective")


def name_formulas(recompute: str | int, *, gpt: bool) -> dict[str, str]:
    """Return the formulas of operations of the model, executed operations and GPT-NeoX's operations, as text.

    Parameters
    ----------
    gpt
        Whether layers without experts have the ``12 h^2`` weights of a GPT.
    """
    hardware = SELECTIVE_FORMULA if recompute == "selective" else MODEL_FORMULA
    hardware = FULL_FORMULA if has_layer_recompute(recompute) else hardware
    addition = "" if gpt else OTHER_WEIGHTS
    return {
        name: formula + addition
        for name, formula in {"model": MODEL_FORMULA, "hardware": hardware, "neox": NEOX_FORMULA}.items()
    }


def count_parameters(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    positions: str,
    tied: bool,
    experts: ExpertShape = DENSE,
    block: BlockShape = GPT,
) -> int:
    """Return the number of parameters.

    With learned positions and a tied head this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper omits.
    """
    embedding = vocab * hidden * (1 if tied else 2) + (seq_len * hidden if positions == "learned" else 0)
    norm = block.count_norm_parameters(hidden)
    further = experts.count_further_parameters(hidden, block)
    return layers * block.count_parameters(hidden) + embedding + norm + further


def count_model_flops(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    experts: ExpertShape = DENSE,
    block: BlockShape = GPT,
) -> float:
    """Return the operations that one sequence needs, forward and backward, without recomputation and dropped tokens.

    ``6 s (l w + h V) + 12 s^2 l h`` with w weights per layer: ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` for a GPT (arXiv
    2104.04473, section 5.1, without recomputation). As in the literature, masked positions count.
    """
    core = 4 * layers * seq_len**2 * hidden
    forward = 2 * seq_len * (layers * block.count_weights(hidden) + hidden * vocab) + core
    return 3 * (forward + experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=False, block=block))


def count_hardware_flops(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    recompute: str | int,
    experts: ExpertShape = DENSE,
    block: BlockShape = GPT,
) -> float:
    """Return the operations that are executed for one sequence, with recomputation and empty places of experts.

    With full recomputation the forward pass of each layer runs twice: ``8 s l w + 6 s h V + 16 s^2 l h``, for a GPT
    ``96 s l h^2 (1 + s/(6h) + V/(16 l h))`` (arXiv 2104.04473, equation 3). With selective recomputation the core of
    attention counts twice, for a GPT ``72 s l h^2 (1 + s/(3h) + V/(12 l h))``, about ``1 + s/(6h)`` times the
    operations of the model (arXiv 2205.05198, appendix A). The hardware FLOP/s of that paper use it, and others compare
    with these. The forward pass of the attention core alone, ``4 s^2 h`` per layer, is a third of what this form adds.

    Parameters
    ----------
    recompute
        Setting of the run: ``none`` (or 0), ``selective``, ``full``, or a number of layers that are recomputed
        together, which costs the same as ``full``.
    """
    core = 4 * layers * seq_len**2 * hidden
    blocks: float = 2 * seq_len * layers * block.count_weights(hidden) + core
    blocks += experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=True, block=block)
    head = 6 * seq_len * hidden * vocab
    if has_layer_recompute(recompute):
        return 4 * blocks + head
    return 3 * blocks + head + (3 * core if recompute == "selective" else 0)


def count_neox_flops(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    recompute: str | int,
    experts: ExpertShape = DENSE,
    block: BlockShape = GPT,
) -> float:
    """Return the executed operations of one sequence, as GPT-NeoX prints them.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 if layers are recomputed, else 3 (``megatron/logging.py``); w
    weights of a layer take the place of ``12 h^2``. The last term is exact for f = 4 only: without recomputation it
    counts three quarters of the logits. GPT-NeoX has no selective recomputation; here it counts as none.
    """
    work: float = 2 * seq_len * layers * block.count_weights(hidden) + 4 * layers * seq_len**2 * hidden
    work += 3 * seq_len * hidden * vocab / 2
    work += experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=True, block=block)
    return (4 if has_layer_recompute(recompute) else 3) * work
