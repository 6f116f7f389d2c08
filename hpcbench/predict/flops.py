"""Parameters and floating-point operations of a GPT, by the published closed forms (pure arithmetic).

The forms are of dense models. A layer with experts replaces the MLP's operations by those of the router and of the
experts' MLPs, row by row: a row is one token for one expert. The model needs the rows that an expert keeps, so that a
token that is dropped counts nothing. Executed are the rows that experts compute, empty places included.
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
    shared: int
    """Experts that every token goes through."""
    choices: int
    """Experts that the router chooses from."""
    chosen: int
    """Rows of one sequence that a layer's router chooses."""
    places: int | None
    """Rows of one sequence that a layer's experts have places for; None if they take all."""
    padded: bool
    """Whether experts compute all of their places, empty ones as zeros."""
    routers: int
    """Ranks that route the same tokens."""
    kept: float | None = None
    """Rows of one sequence that a layer's experts kept, a mean over layers; None before a run."""

    @property
    def needed(self) -> float:
        """Rows of one sequence that a layer keeps; before a run the most that it can keep."""
        if self.kept is not None:
            return self.kept
        return self.chosen if self.places is None else min(self.chosen, self.places)

    @property
    def executed(self) -> float:
        """Rows of one sequence that a layer computes."""
        return self.places if self.padded and self.places is not None else self.needed

    def further_parameters(self, hidden: int) -> int:
        """Parameters beyond those of a dense model."""
        mlp = 8 * hidden**2 + 5 * hidden
        return self.layers * ((self.held - 1) * mlp + self.choices * hidden)

    def flops_beyond_dense(self, *, hidden: int, seq_len: int, executed: bool) -> float:
        """Return the operations of one forward pass of a sequence minus those of a dense model."""
        rows, routers = (self.executed, self.routers) if executed else (self.needed, 1)
        mlps = (rows + (self.shared - 1) * seq_len) * 16 * hidden**2
        return self.layers * (mlps + routers * 2 * seq_len * self.choices * hidden)


DENSE = ExpertShape(layers=0, held=1, shared=1, choices=0, chosen=0, places=None, padded=False, routers=1)


def recomputes_layers(recompute: str | int) -> bool:
    """Whether each layer's forward runs twice, all layers at once or so many at a time."""
    return bool(recompute) and recompute not in ("none", "selective")


def name_hardware_formula(recompute: str | int) -> str:
    """What `count_hardware_flops` follows, in words."""
    if recomputes_layers(recompute):
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
    """Number of parameters.

    With learned positions and a tied head this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper leaves out.
    """
    block = 12 * hidden**2 + 13 * hidden
    embedding = vocab * hidden * (1 if tied else 2) + (seq_len * hidden if positions == "learned" else 0)
    return layers * block + embedding + 2 * hidden + experts.further_parameters(hidden)


def count_model_flops(*, layers: int, hidden: int, vocab: int, seq_len: int, experts: ExpertShape = DENSE) -> float:
    """Return the operations that one sequence needs, forward and backward, without recomputation and dropped tokens.

    ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` (arXiv 2104.04473, section 5.1, without recomputation). The causal mask is
    not taken off, as everywhere in the literature.
    """
    dense = 72 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * layers * hidden))
    return dense + 3 * experts.flops_beyond_dense(hidden=hidden, seq_len=seq_len, executed=False)


def count_hardware_flops(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Return the operations that are executed for one sequence, with what is recomputed and empty places of experts.

    ``96 s l h^2 (1 + s/(6h) + V/(16 l h))`` where each layer's forward runs twice (arXiv 2104.04473, equation 3), and
    ``72 s l h^2 (1 + s/(3h) + V/(12 l h))`` with selective recomputation, ``1 + s/(6h)`` times the model's in good
    approximation (arXiv 2205.05198, appendix A). The latter is what that paper's hardware FLOPs/s follow, and therefore
    what others compare with; the core's forward alone, ``4 s^2 h`` a layer, would be a third of what it adds.

    Parameters
    ----------
    recompute
        As in a run: ``none`` (or 0), ``selective``, ``full``, or every so many layers, which costs the same as full.
    """
    further = experts.flops_beyond_dense(hidden=hidden, seq_len=seq_len, executed=True)
    if recomputes_layers(recompute):
        dense = 96 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
        return dense + 4 * further
    core = 12 * layers * seq_len**2 * hidden if recompute == "selective" else 0
    dense = count_model_flops(layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len)
    return dense + 3 * further + core


def count_neox_flops(
    *, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int, experts: ExpertShape = DENSE
) -> float:
    """Operations of one sequence as GPT-NeoX prints them, which are to be those that were executed.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 forwards' worth of work where activations are recomputed and 3
    where they are not (``megatron/logging.py``). The last term holds for f = 4 alone: without recomputation it counts
    three quarters of the logits. It knows no selective recomputation: that counts as none.
    """
    work = 24 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    work += experts.flops_beyond_dense(hidden=hidden, seq_len=seq_len, executed=True)
    return (4 if recomputes_layers(recompute) else 3) * work
