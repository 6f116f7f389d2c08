"""In which precision messages travel, by what they hold: from a run's settings alone, read without NumPy."""

from collections.abc import Mapping

from hpcbench.comm.rules import Triple

CONTENTS = ("activations", "gradients", "parameters")
"""What a message may hold whose precision can be chosen. Activations stand for their gradients, too."""
PRESETS: dict[str, dict[str, str]] = {
    **{name: dict.fromkeys(CONTENTS, name) for name in ("auto", "fp32", "bf16", "fp16")},
    "megatron": {"activations": "auto", "gradients": "fp32", "parameters": "auto"},
}
"""One word for all contents. ``auto`` is the precision of the run, as GPT-NeoX and DeepSpeed have it; Megatron-LM sums
the gradients of weights in fp32."""


def content_of(triple: Triple) -> str | None:
    """What the messages of a dimension, phase and kind hold; None of what always travels as it is.

    That is exact traffic, and the momenta of 1-bit Adam, which its codec takes in fp32.
    """
    dimension, phase, kind = triple
    if dimension == "EXACT" or kind == "OPTIM":
        return None
    if kind == "PARAM":
        return "parameters"
    return "gradients" if dimension == "DP" or (dimension, phase) == ("PP", "STEP") else "activations"


def precisions(precision: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Name of the number format of each content's messages.

    Parameters
    ----------
    precision
        Of the run: ``fp64``, ``fp32``, ``bf16`` or ``fp16``.
    chosen
        A format, or ``auto``, for each of `CONTENTS`.
    """
    return {content: precision if chosen[content] == "auto" else chosen[content] for content in CONTENTS}


def summed_in(precision: str) -> str:
    """The format in which a run of this precision makes sums."""
    return "fp64" if precision == "fp64" else "fp32"
