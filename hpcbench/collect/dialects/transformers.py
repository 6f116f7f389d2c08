"""Log lines of TRL and of the Hugging Face Trainer: dictionaries without a step number.

If the Trainer uses DeepSpeed, DeepSpeed's lines appear between the dictionaries. The log is attributed to the framework
that prints more lines. DeepSpeed's lines contain step numbers, and the Trainer's lines contain losses.
"""

import re
from dataclasses import replace

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import PLAIN, SCALED_COUNT

_FORM = r"""['"]{name}['"]: ['"]?{value}['"]?(?=[,}])"""
_PAIRS = r"""(?:['"][^'"{}]{1,80}['"]: [^{}]{1,80}?(?:, |(?=\})))*\}"""


def _dictionary(key: str) -> str:
    """Return a regular expression that matches the beginning of a dictionary with a given key."""
    return rf"""\{{(?=[^{{}}]{{0,4000}}?['"]{key}['"]: )"""


LOSSES = Line(
    _dictionary("loss"),
    tail=r"\}",
    joined=_PAIRS,
    form=_FORM,
    fields=(
        Field("loss", "loss", PLAIN),
        Field("learning_rate", "lr", PLAIN),
        Field("grad_norm", "gradient_norm", PLAIN),
        Field("num_tokens", "consumed_tokens", SCALED_COUNT),
        Field("num_input_tokens_seen", "consumed_tokens", SCALED_COUNT),
    ),
)
"""Dictionary with the losses of some steps. The dictionary belongs to the preceding step, unless dictionaries are
counted."""
EVALUATIONS = Line(
    _dictionary(r"eval_(?:(?P<set>\w{1,60}?)_)?loss"),
    tail=r"\}",
    joined=_PAIRS,
    form=_FORM,
    fields=(Field("eval_loss", "valid", PLAIN), Field("eval_*_loss", "valid", PLAIN)),
    kind="evaluation",
)
END = Line(
    _dictionary("train_runtime"),
    tail=r"\}",
    joined=_PAIRS,
    form=_FORM,
    fields=(
        Field("train_samples_per_second", "samples_per_s", PLAIN, running_mean=True),
        Field("train_tokens_per_second", "tokens_per_s", PLAIN, running_mean=True),
    ),
    kind="end",
    state="completed",
    note="samples/s are the Trainer's mean over the whole run",
)


def trainer(engine: Dialect) -> Dialect:
    """Return the Trainer's dialect, extended with the lines of an engine. The engine's step numbers are not used."""
    lines = (replace(line, head=re.sub(r"\(\?P<step>", "(?:", line.head)) for line in engine.lines)
    counted = replace(
        LOSSES, counted=True, note="the Trainer prints no step numbers: steps are numbered by counting its lines"
    )
    others = tuple(line for line in lines if line not in (LOSSES, EVALUATIONS, END))
    return Dialect(
        "transformers",
        markers=("loss", "train_runtime", *engine.markers),
        engine=True,
        lines=(counted, EVALUATIONS, END, *others),
    )
