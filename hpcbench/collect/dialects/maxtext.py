"""Log lines of MaxText: fields separated by commas.

Steps count from 0, and no line contains the total number of steps.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import PLAIN, SECONDS, TFLOPS

_LOSS = r"(?:[0-9]{1,9}\.[0-9]{3}(?![0-9])|nan|inf)"

MAXTEXT = Dialect(
    "MaxText",
    markers=("completed ", "eval ", "Aborting training"),
    lines=(
        Line(
            r"completed (?:profiler activation/deactivation )?step: (?P<step>[0-9]{1,18})(?=,)",
            tail=rf", loss: {_LOSS}",
            joined=rf"(?:, [^,:]{{1,60}}: [^,\s]{{1,40}})*?, loss: {_LOSS}",
            form=r", {name}: {value}(?=,|\s|$)",
            fields=(
                Field("seconds", "seconds", SECONDS),
                # Model FLOPs, computed from the model's shape, without recomputation.
                Field("TFLOP/s/device", "model_flops_per_rank", TFLOPS),
                Field("Tokens/s/device", "tokens_per_s_per_rank", PLAIN),
                Field("loss", "loss", PLAIN),
            ),
        ),
        Line(
            r"(?:eval metrics after step:|Completed eval after train step) (?P<step>[0-9]{1,18})(?=, loss=)",
            tail=rf", loss={_LOSS}",
            form=r", {name}={value}(?=,|\s|$)",
            fields=(Field("loss", "valid", PLAIN),),
            kind="evaluation",
        ),
        Line(r"Aborting training due to (?:NaN|Inf) loss", kind="end", state="nan"),
    ),
)
