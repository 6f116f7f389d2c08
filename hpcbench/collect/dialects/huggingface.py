"""Log lines of nanotron and picotron: fields separated by vertical bars, with numbers such as 1.23K."""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.forms import BAR, BARS
from hpcbench.collect.dialects.units import (
    PERCENT,
    PLAIN,
    SCALED,
    SCALED_COUNT,
    SCALED_MILLISECONDS,
    SCALED_TFLOPS,
)

_ETA = r"\s*eta:\s*(?:-?[0-9]{1,6} days?, )?[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?![0-9])"

NANOTRON = Dialect(
    "nanotron",
    markers=("iteration: ",),
    lines=(
        Line(
            r"iteration: (?P<step>[0-9]{1,18}) / (?P<steps>[0-9]{1,18}) *\|",
            tail=rf"\|{_ETA}",
            joined=rf"{BARS}*?{_ETA}",
            end=r"\|\s*model_tflops_per_gpu:[^|]{1,40}(?:\|.{0,4000})?",  # the remaining time is printed since 2025
            form=BAR,
            # The global batch size is not read: its unit changed from samples to tokens, but its name did not.
            fields=(
                Field("consumed_tokens", "consumed_tokens", SCALED_COUNT),
                Field("*time_per_iteration_ms", "seconds", SCALED_MILLISECONDS),
                Field("tokens_per_sec", "tokens_per_s", SCALED),
                Field("tokens_per_sec_per_gpu", "tokens_per_s_per_rank", SCALED),
                Field("lm_loss", "loss", SCALED),
                Field("lr", "lr", SCALED),
                Field("grad_norm", "gradient_norm", SCALED),
                Field("model_tflops_per_gpu", "model_flops_per_rank", SCALED_TFLOPS),
                Field("hardware_tflops_per_gpu", "hardware_flops_per_rank", SCALED_TFLOPS),
            ),
            note="nanotron prints three digits of the loss, which is too few to compare the convergence of two runs",
        ),
    ),
)
_OF_ALL = r"\|\s*{name}:\s*{value}(?:/[^|\s]{1,20})?\s*\|"

PICOTRON = Dialect(
    "picotron",
    markers=("Step: ",),
    lines=(
        Line(
            r"Step: (?P<step>[0-9]{1,18}) *\|(?=\s*Loss:)",
            tail=r"\|\s*Memory usage: *[0-9]{1,9}\.[0-9]{2}GB",
            joined=rf"{BARS}*?\s*Memory usage: *[0-9]{{1,9}}\.[0-9]{{2}}GB",
            # The memory is not read: it is the currently reserved memory, not the peak.
            form=BAR,
            fields=(
                Field("Loss", "loss", PLAIN),
                Field("Tokens/s", "tokens_per_s", SCALED),
                Field("Tokens/s/GPU", "tokens_per_s_per_rank", SCALED),
                Field("Tokens", "consumed_tokens", SCALED_COUNT, form=_OF_ALL),
                Field("MFU", "mfu", PERCENT),
            ),
        ),
    ),
)
