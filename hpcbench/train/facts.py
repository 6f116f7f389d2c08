"""Numbers that follow from a run's settings and its text, before any step."""

from typing import Any

from hpcbench.contract.run import Run
from hpcbench.predict import flops
from hpcbench.predict.experts import expert_shape
from hpcbench.train.corpus import Corpus


def facts(run: Run, corpus: Corpus) -> dict[str, Any]:
    """Return the numbers that follow from the configuration."""
    shape = shape_of(run)
    return {
        "parameters": flops.parameters(**shape, positions=run.model.positions, tied=run.model.tied),
        "model_flops_per_sample": flops.model_flops_per_sample(**shape),
        "hardware_flops_per_sample": flops.hardware_flops_per_sample(**shape, recompute=run.train.recompute),
        "neox_flops_per_sample": flops.neox_flops_per_sample(**shape, recompute=run.train.recompute),
        "flops_formulas": {
            "model": flops.MODEL_FORMULA,
            "hardware": flops.hardware_formula(run.train.recompute),
            "neox": flops.NEOX_FORMULA,
        },
        "corpus": corpus.digest,
        "corpus_tokens": {"train": len(corpus.train), "valid": len(corpus.valid)},
        "valid_loss_uniform": corpus.uniform_loss,
        "valid_loss_unigram": corpus.unigram_loss(),
        "unigram_tokens": corpus.unigram_tokens,
    }


def shape_of(run: Run) -> dict[str, Any]:
    """Return the sizes that the formulas of operations and parameters ask for."""
    model = run.model
    sizes = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": run.train.seq_len}
    return {**sizes, "experts": expert_shape(model, run.train, run.layout)}
