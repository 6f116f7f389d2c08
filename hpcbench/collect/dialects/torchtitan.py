"""Log lines of torchtitan: colored, with two spaces between fields. Every rank may print these lines.

Only the last pipeline stage computes a loss. The other stages print -1.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import GIB, OWN, PERCENT, PLAIN, TFLOPS

_FORM = r"(?:^|\s){name}: *{value}(?=\s|GiB|$)"
_FIELD = r"\w{1,40}: *[^\s:]{1,40}\s+"

TORCHTITAN = Dialect(
    "torchtitan",
    markers=("step: ", "Training completed"),
    lines=(
        Line(
            r"(?<!validate )step: *(?P<step>[0-9]{1,18})\s+(?=(?:loss|grad_norm|memory): )",
            tail=r"\smfu: *(?:[0-9]{1,6}\.[0-9]{2}%|N/A)",
            joined=rf"(?:{_FIELD})*?mfu: *(?:[0-9]{{1,6}}\.[0-9]{{2}}%|N/A)",
            form=_FORM,
            fields=(
                Field("loss", "loss", OWN),
                Field("grad_norm", "gradient_norm", PLAIN),
                Field("memory", "memory_bytes", GIB),
                Field("tps", "tokens_per_s_per_rank", PLAIN),
                Field("wps", "tokens_per_s_per_rank", PLAIN),
                Field("tflops", "model_flops_per_rank", TFLOPS),
                Field("mfu", "mfu", PERCENT),
            ),
        ),
        Line(
            r"validate step: *(?P<step>[0-9]{1,18})\s+(?=loss: )",
            tail=r"\smemory: ",
            joined=r"loss: *[^\s:]{1,40}\s+memory: ",
            form=_FORM,
            fields=(Field("loss", "valid", OWN),),
            kind="evaluation",
        ),
        Line(r"Training completed\b", kind="end", state="completed"),
    ),
)
