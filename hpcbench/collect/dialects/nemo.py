"""Log lines of NeMo 2 and Automodel: fields separated by vertical bars.

The validation loss is not read, because NeMo repeats the last validation loss in each line. The lines have no closing
mark.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.forms import BAR
from hpcbench.collect.dialects.units import GIB, NUMBER, PLAIN, SCALED_COUNT, SECONDS, TFLOPS, WHOLE

_COUNT = r"(?P<step>[0-9]{1,18})(?:\.0{1,6})?"
_GLOBAL = rf"(?=(?:(?!Training epoch)[^\n]){{0,4000}}?\bglobal_step: {_COUNT}(?:\s|$))"
_FIELDS = (
    Field("lr", "lr", PLAIN),
    Field("consumed_samples", "consumed_samples", SCALED_COUNT),
    Field("global_batch_size", "samples", WHOLE),
    Field("reduced_train_loss", "loss", PLAIN),
    Field("grad_norm", "gradient_norm", PLAIN),
    Field("train_step_timing in s", "seconds", SECONDS),
    Field("TFLOPS_per_GPU", "model_flops_per_rank", TFLOPS),
)

NEMO = Dialect(
    "NeMo",
    markers=("Training epoch ", "global_step=", "stopped: "),
    lines=(
        # Iterations are counted within an epoch.
        Line(
            r"Training epoch [0-9]{1,9}, iteration [0-9]{1,18}/[0-9]{1,18} *" + _GLOBAL + r"(?=\|)",
            end=rf"\| [^|:]{{1,60}}: {NUMBER}",
            form=BAR,
            fields=_FIELDS,
        ),
        Line(
            r"Training epoch [0-9]{1,9}, iteration (?P<step>[0-9]{1,18})/[0-9]{1,18} *(?=\|)",
            end=rf"\| [^|:]{{1,60}}: {NUMBER}",
            form=BAR,
            fields=_FIELDS,
        ),
        # Lightning's progress bar.
        Line(
            r"Epoch [0-9]{1,9}: [^\[\]\r\n]{0,300}\[[^\[\],\r\n]{0,60}, "
            rf"(?=[^\[\]\r\n]{{0,2000}}\bglobal_step={_COUNT}[,\]])",
            tail=r"\]",
            form=r"[\s,]{name}={value}(?=[,\]])",
            fields=_FIELDS,
        ),
        Line(r"`?Trainer\.fit`? stopped: `?max_\w{1,9}=[0-9]{1,18}`? reached", kind="end", state="completed"),
    ),
)

_FIELD = r"\|\s*{name}:?\s+{value}\s*(?=[|(]|GiB|$)"
_SPACED = r"(?:\s*[a-z_]{1,40} +[^|\s][^|]{0,60}\|)"

AUTOMODEL = Dialect(
    "Automodel",
    markers=("step ",),
    lines=(
        Line(
            r"(?<!\] )(?<!\" \| )step (?P<step>[0-9]{1,18}) *\|(?=\s*epoch [0-9]{1,9} *\| *loss )",
            tail=r"\|\s*num_label_tokens [0-9]{1,18}",
            joined=rf"{_SPACED}+?\s*num_label_tokens [0-9]{{1,18}}",
            form=_FIELD,
            fields=(
                Field("loss", "loss", PLAIN),
                Field("grad_norm", "gradient_norm", PLAIN),
                Field("lr", "lr", PLAIN),
                Field("mem", "memory_bytes", GIB),
                Field("tps", "tokens_per_s", PLAIN),
                Field("/gpu", "tokens_per_s_per_rank", PLAIN, form=r"\({value}{name}\)"),
            ),
        ),
        Line(
            r"\[val\] (?:name \"(?P<set>[\w.-]{1,60})\" \| )?step (?P<step>[0-9]{1,18}) *\|(?=\s*epoch )",
            tail=r"\|\s*num_label_tokens [0-9]{1,18}",
            joined=rf"{_SPACED}+?\s*num_label_tokens [0-9]{{1,18}}",
            form=_FIELD,
            fields=(Field("loss", "valid", PLAIN),),
            kind="evaluation",
        ),
    ),
)
