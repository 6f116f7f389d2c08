"""Quantities that are determined by the settings and the corpus of a run, before the first step."""

from typing import Any

from hpcbench.contract.run import Run
from hpcbench.predict import flops
from hpcbench.predict.experts import describe_experts
from hpcbench.train.corpus import Corpus

MODEL_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(6h) + V/(12 l h)), arXiv 2104.04473 section 5.1"
NEOX_FORMULA = "GPT-NeoX: 24 f s l h^2 (1 + s/(6h) + V/(16 l h)), f = 4 with layers recomputed, else 3"
SELECTIVE_FORMULA = "Megatron-LM: 72 s l h^2 (1 + s/(3h) + V/(12 l h)), arXiv 2205.05198 appendix A"
FULL_FORMULA = "Megatron-LM: 96 s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473 section 5.1"
OTHER_WEIGHTS = ", where the w weights of a layer replace 12 h^2"
"""Text appended to a formula if layers differ from GPT layers."""


def facts(run: Run, corpus: Corpus) -> dict[str, Any]:
    """Return the quantities that are determined by the configuration."""
    shape = shape_of(run)
    return {
        "parameters": flops.count_parameters(**shape, positions=run.model.positions, tied=run.model.tied),
        "model_flops_per_sample": flops.count_model_flops(**shape),
        "hardware_flops_per_sample": flops.count_hardware_flops(**shape, recompute=run.train.recompute),
        "neox_flops_per_sample": flops.count_neox_flops(**shape, recompute=run.train.recompute),
        "flops_formulas": name_formulas(run.train.recompute, gpt=run.model.layer_weights == 12 * run.model.hidden**2),
        "corpus": corpus.digest,
        "corpus_tokens": {"train": len(corpus.train), "valid": len(corpus.valid)},
        "valid_loss_uniform": corpus.uniform_loss,
        "valid_loss_unigram": corpus.unigram_loss(),
        "unigram_tokens": corpus.unigram_tokens,
    }


def shape_of(run: Run) -> dict[str, Any]:
    """Return the sizes required by the formulas for operation and parameter counts."""
    model = run.model
    sizes = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": run.train.seq_len}
    return {
        **sizes,
        "experts": describe_experts(model, run.train, run.layout),
        "block": flops.describe_block(model),
    }


def name_formulas(recompute: str | int, *, gpt: bool) -> dict[str, str]:
    """Return the formulas for model FLOPs, hardware FLOPs and GPT-NeoX FLOPs as text.

    Parameters
    ----------
    gpt
        Whether layers without experts contain ``12 h^2`` weights, as in a GPT.
    """
    hardware = SELECTIVE_FORMULA if recompute == "selective" else MODEL_FORMULA
    hardware = FULL_FORMULA if flops.has_layer_recompute(recompute) else hardware
    addition = "" if gpt else OTHER_WEIGHTS
    return {
        name: formula + addition
        for name, formula in {"model": MODEL_FORMULA, "hardware": hardware, "neox": NEOX_FORMULA}.items()
    }
