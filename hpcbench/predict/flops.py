"""Parameters and floating-point operations of a GPT, by published closed forms. Pure.

The forms are those of dense models. In a layer with experts, the operations of the MLP are replaced by those of the
router and of the experts' MLPs, counted by rows: a row is one token for one expert. The operations of the model count
only rows that an expert keeps, no dropped tokens. The executed operations count all rows that experts compute, with
empty places.
"""

from typing import NamedTuple

MODEL_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(6h) + V/(12 l h)), arXiv 2104.04473 section 5.1"
NEOX_FORMULA = "GPT-NeoX: 24 f s l h^2 (1 + s/(6h) + V/(16 l h)), f = 4 with layers recomputed, else 3"
SELECTIVE_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(3h) + V/(12 l h)), arXiv 2205.05198 appendix A"
FULL_FORMULA = "Megatron-LM: 96 s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473 section 5.1"


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

    def count_further_parameters(self, hidden: int) -> int:
        """Return the number of parameters beyond those of a dense model."""
        mlp = 8 * hidden**2 + 5 * hidden
        return self.layers * ((self.held - 1) * mlp + self.choices * hidden)

    def count_further_flops(self, *, hidden: int, seq_len: int, executed: bool) -> float:
        """Return the operations of one forward pass of a sequence minus those of a dense model."""
        rows, routers = (self.executed, self.routers) if executed else (self.needed, 1)
        mlps = (rows + (self.shared - 1) * seq_len) * 16 * hidden**2
        return self.layers * (mlps + routers * 2 * seq_len * self.choices * hidden)


DENSE = ExpertShape(layers=0, held=1, shared=1, choices=0, chosen=0, places=None, padded=False, routers=1)


def has_layer_recompute(recompute: str | int) -> bool:
    """Return whether the forward pass of each layer runs twice, with full recomputation or by groups of layers."""
    return bool(recompute) and recompute not in ("none", "selective")


def name_hardware_formula(recompute: str | int) -> str:
    """Return the formula of `count_hardware_flops`, as text."""
    if has_layer_recompute(recompute):
        return FULL_FORMULA
    return SELECTIVE_FORMULA if recompute == "selective" else MODEL_FORMULA


def count_parameters(
    *,
    layers: int,
    hidden: int,
    vocab: int,
    seq_len: int,
    positions: str,
    tied: bool,
    experts: ExpertShape = DENSE,
) -> int:
    """Return the number of parameters.

    With learned positions and a tied head this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper omits.
    """
    block = 12 * hidden**2 + 13 * hidden
    embedding = vocab * hidden * (1 if tied else 2) + (seq_len * hidden if positions == "learned" else 0)
    return layers * block + embedding + 2 * hidden + experts.count_further_parameters(hidden)


def count_model_flops(*, layers: int, hidden: int, vocab: int, seq_len: int, experts: ExpertShape = DENSE) -> float:
    """Return the operations that one sequence needs, forward and backward, without recomputation and dropped tokens.

    ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` (arXiv 2104.04473, section 5.1, without recomputation). As in the
    literature, masked positions count.
    """
    dense = 72 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * layers * hidden))
    return dense + 3 * experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=False)


def count_hardware_flops(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Return the operations that are executed for one sequence, with recomputation and empty places of experts.

    With full recomputation the forward pass of each layer runs twice: ``96 s l h^2 (1 + s/(6h) + V/(16 l h))`` (arXiv
    2104.04473, equation 3). With selective recomputation the form is ``72 s l h^2 (1 + s/(3h) + V/(12 l h))``, about
    ``1 + s/(6h)`` times the operations of the model (arXiv 2205.05198, appendix A). The hardware FLOP/s of that paper
    use it, and others compare with these. The forward pass of the attention core alone, ``4 s^2 h`` per layer, is a
    third of what this form adds.

    Parameters
    ----------
    recompute
        Setting of the run: ``none`` (or 0), ``selective``, ``full``, or a number of layers that are recomputed
        together, which costs the same as ``full``.
    """
    further = experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=True)
    if has_layer_recompute(recompute):
        dense = 96 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
        return dense + 4 * further
    core = 12 * layers * seq_len**2 * hidden if recompute == "selective" else 0
    dense = count_model_flops(layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len)
    return dense + 3 * further + core


def count_neox_flops(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Return the executed operations of one sequence, as GPT-NeoX prints them.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 if layers are recomputed, else 3 (``megatron/logging.py``).
    The last term is exact for f = 4 only: without recomputation it counts three quarters of the logits. GPT-NeoX has no
    selective recomputation; here it counts as none.
    """
    work = 24 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    work += experts.count_further_flops(hidden=hidden, seq_len=seq_len, executed=True)
    return (4 if has_layer_recompute(recompute) else 3) * work
