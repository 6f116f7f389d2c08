"""Quantities that are determined by the settings and the corpus of a run, before the first step."""

from typing import Any

from hpcbench.contract.run import Run
from hpcbench.predict import flops
from hpcbench.predict.experts import describe_experts
from hpcbench.train.corpus import Corpus


def facts(run: Run, corpus: Corpus) -> dict[str, Any]:
    """Return the quantities that the configuration determines."""
    shape = shape_of(run)
    return {
        "parameters": flops.count_parameters(**shape, positions=run.model.positions, tied=run.model.tied),
        "model_flops_per_sample": flops.count_model_flops(**shape),
        "hardware_flops_per_sample": flops.count_hardware_flops(**shape, recompute=run.train.recompute),
        "neox_flops_per_sample": flops.count_neox_flops(**shape, recompute=run.train.recompute),
        "flops_formulas": flops.name_formulas(
            run.train.recompute, gpt=run.model.layer_weights == 12 * run.model.hidden**2
        ),
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
