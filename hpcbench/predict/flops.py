"""Parameters and floating-point operations of a GPT, by the published closed forms (pure arithmetic).

The forms are of dense models. A layer with experts has more on top: the router, and for each further expert of a token
the operations of one more MLP. Tokens that are dropped count as if they were not.
"""

from typing import NamedTuple

MODEL_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(6h) + V/(12 l h)), arXiv 2104.04473 section 5.1"
NEOX_FORMULA = "GPT-NeoX: 24 f s l h^2 (1 + s/(6h) + V/(16 l h)), f = 4 with layers recomputed, else 3"
SELECTIVE_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(3h) + V/(12 l h)), arXiv 2205.05198 appendix A"
FULL_FORMULA = "Megatron-LM: 96 s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473 section 5.1"


class ExpertShape(NamedTuple):
    """The layers of a model that have experts."""

    layers: int
    """Number of these layers."""
    held: int
    """Experts of a layer, shared ones included."""
    active: int
    """Experts that a token goes through."""
    choices: int
    """Experts that the router chooses from."""

    def further_parameters(self, hidden: int) -> int:
        """Parameters beyond those of a dense model."""
        mlp = 8 * hidden**2 + 5 * hidden
        return self.layers * ((self.held - 1) * mlp + self.choices * hidden)

    def further_flops(self, *, hidden: int, seq_len: int) -> int:
        """Operations of one forward pass of a sequence beyond those of a dense model."""
        return seq_len * self.layers * ((self.active - 1) * 16 * hidden**2 + 2 * self.choices * hidden)


DENSE = ExpertShape(0, 1, 1, 0)


def whole_layers(recompute: str | int) -> bool:
    """Whether each layer's forward runs twice, all layers at once or so many at a time."""
    return bool(recompute) and recompute not in ("none", "selective")


def hardware_formula(recompute: str | int) -> str:
    """What `hardware_flops_per_sample` follows, in words."""
    if whole_layers(recompute):
        return FULL_FORMULA
    return SELECTIVE_FORMULA if recompute == "selective" else MODEL_FORMULA


def parameters(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    positions: str,
    tied: bool,
    experts: ExpertShape = DENSE,
) -> int:
    """Number of parameters.

    With learned positions and a tied head this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper leaves out.
    """
    block = 12 * hidden**2 + 13 * hidden
    embedding = vocab * hidden * (1 if tied else 2) + (seq_len * hidden if positions == "learned" else 0)
    return layers * block + embedding + 2 * hidden + experts.further_parameters(hidden)


def model_flops_per_sample(
    *, layers: int, hidden: int, vocab: int, seq_len: int, experts: ExpertShape = DENSE
) -> float:
    """Operations that one sequence needs, forward and backward: recomputation is not counted.

    ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` (arXiv 2104.04473, section 5.1, without recomputation). The causal mask is
    not taken off, as everywhere in the literature.
    """
    dense = 72 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * layers * hidden))
    return dense + 3 * experts.further_flops(hidden=hidden, seq_len=seq_len)


def hardware_flops_per_sample(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Operations that one sequence costs, with what is recomputed.

    ``96 s l h^2 (1 + s/(6h) + V/(16 l h))`` where each layer's forward runs twice (arXiv 2104.04473, equation 3), and
    ``72 s l h^2 (1 + s/(3h) + V/(12 l h))`` with selective recomputation, ``1 + s/(6h)`` times the model's in good
    approximation (arXiv 2205.05198, appendix A). The latter is what that paper's hardware FLOPs/s follow, and therefore
    what others compare with; the core's forward alone, ``4 s^2 h`` a layer, would be a third of what it adds.

    Parameters
    ----------
    recompute
        As in a run: ``none`` (or 0), ``selective``, ``full``, or every so many layers, which costs the same as full.
    """
    further = experts.further_flops(hidden=hidden, seq_len=seq_len)
    if whole_layers(recompute):
        dense = 96 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
        return dense + 4 * further
    core = 12 * layers * seq_len**2 * hidden if recompute == "selective" else 0
    dense = model_flops_per_sample(layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len)
    return dense + 3 * further + core


def neox_flops_per_sample(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Operations of one sequence as GPT-NeoX prints them, which are to be those that were executed.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 forwards' worth of work where activations are recomputed and 3
    where they are not (``megatron/logging.py``). The last term holds for f = 4 alone: without recomputation it counts
    three quarters of the logits. It knows no selective recomputation: that counts as none.
    """
    work = 24 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    return (4 if whole_layers(recompute) else 3) * (work + experts.further_flops(hidden=hidden, seq_len=seq_len))
