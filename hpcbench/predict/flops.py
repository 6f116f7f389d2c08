"""Parameters and floating-point operations of a GPT, by the published closed forms (pure arithmetic)."""

MODEL_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(6h) + V/(12 l h)), arXiv 2104.04473 section 5.1"
NEOX_FORMULA = "GPT-NeoX: 24 f s l h^2 (1 + s/(6h) + V/(16 l h)), f = 4 with layers recomputed, else 3"
SELECTIVE_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(3h) + V/(12 l h)), arXiv 2205.05198 appendix A"
FULL_FORMULA = "Megatron-LM: 96 s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473 section 5.1"


def whole_layers(recompute: str | int) -> bool:
    """Whether each layer's forward runs twice, all layers at once or so many at a time."""
    return bool(recompute) and recompute not in ("none", "selective")


def hardware_formula(recompute: str | int) -> str:
    """What `hardware_flops_per_sample` follows, in words."""
    if whole_layers(recompute):
        return FULL_FORMULA
    return SELECTIVE_FORMULA if recompute == "selective" else MODEL_FORMULA


def parameters(*, layers: int, hidden: int, vocab: int, seq_len: int, positions: str, tied: bool) -> int:
    """Number of parameters.

    With learned positions and a tied head this is Megatron-LM's ``12 l h^2 (1 + 13/(12h) + (V+s)/(12lh))``
    (arXiv 2104.04473, equation 2) plus the ``2h`` of the last LayerNorm, which the paper leaves out.
    """
    block = 12 * hidden**2 + 13 * hidden
    embedding = vocab * hidden * (1 if tied else 2) + (seq_len * hidden if positions == "learned" else 0)
    return layers * block + embedding + 2 * hidden


def model_flops_per_sample(*, layers: int, hidden: int, vocab: int, seq_len: int) -> float:
    """Operations that one sequence needs, forward and backward: recomputation is not counted.

    ``72 s l h^2 (1 + s/(6h) + V/(12 l h))`` (arXiv 2104.04473, section 5.1, without recomputation). The causal mask is
    not taken off, as everywhere in the literature.
    """
    return 72 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * layers * hidden))


def hardware_flops_per_sample(*, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int) -> float:
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
    shape = {"layers": layers, "hidden": hidden, "vocab": vocab, "seq_len": seq_len}
    if whole_layers(recompute):
        return 96 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    core = 12 * layers * seq_len**2 * hidden if recompute == "selective" else 0
    return model_flops_per_sample(**shape) + core


def neox_flops_per_sample(*, layers: int, hidden: int, vocab: int, seq_len: int, recompute: str | int) -> float:
    """Operations of one sequence as GPT-NeoX prints them, which are to be those that were executed.

    ``24 f s l h^2 (1 + s/(6h) + V/(16 l h))`` with f = 4 forwards' worth of work where activations are recomputed and 3
    where they are not (``megatron/logging.py``). The last term holds for f = 4 alone: without recomputation it counts
    three quarters of the logits. It knows no selective recomputation: that counts as none.
    """
    work = 24 * seq_len * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    return (4 if whole_layers(recompute) else 3) * work
