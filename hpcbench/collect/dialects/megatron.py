"""Log lines of Megatron-LM, Megatron-DeepSpeed, and GPT-NeoX, which is based on both.

Each field ends with a vertical bar. Since 2021, the last field is the number of NaN iterations. Megatron prints on the
last rank, so the prefix does not contain rank 0.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.forms import BAR, BARS
from hpcbench.collect.dialects.units import FEW, GLUED_FLOPS, MILLISECONDS, NUMBER, PERCENT, PLAIN, TFLOPS, WHOLE

_ITERATION = r"(?<!, )iteration +(?P<step>[0-9]{1,18})/ *(?P<steps>[0-9]{1,18}) *\|"
_LAST = r"\s*number of nan iterations:\s*[0-9]{1,9}\s*\|"
_COMMON = (
    Field("elapsed time per iteration (ms)", "seconds", MILLISECONDS),
    Field("learning rate", "lr", PLAIN),
    Field("lm loss", "loss", PLAIN),
    Field("lm_loss", "loss", PLAIN),
    Field("* loss", "loss", PLAIN),
    Field("loss", "loss", PLAIN),
    Field("loss scale", "loss_scale", PLAIN),
    Field("number of skipped iterations", "skipped", FEW, since_last=True),
    Field("number of nan iterations", "nan_steps", FEW, since_last=True),
)
_VALUE = r"\|\s*{name} value:\s*{value}\s*(?=\|)"
_LOSSES = ("lm loss", "lm_loss", "*")


def _evaluation(head: str, split: str) -> Line:
    fields = tuple(Field(name, split, PLAIN) for name in _LOSSES)
    tail = r"(?:\|[^|:]{1,80}:[^|]{1,40})+\|"
    return Line(head, tail, joined=rf"\|{BARS}+", form=_VALUE, fields=fields, kind="evaluation")


_SET = r"(?:-(?P<set>[\w.-]{1,60}))?"
_WHERE = r"(?:iteration (?P<step>[0-9]{1,18})[^|]{0,40}|the end of training[^|]{0,40}) (?=\|)"
_ENDS = (
    Line(r"\[after training is done\]", kind="end", state="completed"),
    Line(r"\[exiting program (?:at iteration|after) [^\]]{1,60}\]", kind="end", state="stopped"),
)

MEGATRON = Dialect(
    "Megatron-LM",
    markers=("iteration", "Step Time", " loss at ", "[after ", "[exiting "),
    lines=(
        Line(
            _ITERATION,
            tail=rf"\|{_LAST}{BARS}*",
            joined=rf"{BARS}*?{_LAST}{BARS}*",
            end=r"\|\s*elapsed time per iteration \(ms\):.{0,4000}\|",  # until 2020 nothing marked the end of a line
            form=BAR,
            fields=(
                *_COMMON,
                Field("consumed samples", "consumed_samples", WHOLE),
                Field("consumed tokens", "consumed_tokens", WHOLE),
                Field("global batch size", "samples", WHOLE),
                # The formula counts three passes, even if activations are recomputed.
                Field("throughput per GPU (TFLOP/s/GPU)", "model_flops_per_rank", TFLOPS),
                Field("grad norm", "gradient_norm", PLAIN),
                # Megatron-DeepSpeed adds these fields. Its formula includes recomputation.
                Field("samples per second", "samples_per_s", PLAIN),
                Field("tokens per gpu per second (tgs)", "tokens_per_s_per_rank", PLAIN),
                Field("TFLOPs", "hardware_flops_per_rank", TFLOPS),
            ),
        ),
        # Megatron-Bridge prints this line before the iteration's line, on rank 0.
        Line(
            rf"Step Time ?: ?(?={NUMBER} ?s)",
            tail=r"MODEL_TFLOP/s/GPU",
            joined=rf"{NUMBER} ?s {{1,3}}GPU utilization ?: ?{NUMBER} ?MODEL_TFLOP/s/GPU",
            fields=(
                Field("GPU utilization", "model_flops_per_rank", TFLOPS, form=r"{name} ?: ?{value} ?MODEL"),
                Field("tok/s/gpu", "tokens_per_s_per_rank", PLAIN, form=r"[\s,]{value} ?{name}"),
            ),
            ahead=True,
        ),
        _evaluation(rf"validation{_SET} loss at (?![^|]{{0,80}}\btest\b){_WHERE}", "valid"),
        _evaluation(rf"validation{_SET} loss at (?=[^|]{{0,80}}\btest\b){_WHERE}", "test"),
        *_ENDS,
    ),
)

NEOX = Dialect(
    "GPT-NeoX",
    markers=("samples/sec", " results at ", "[after ", "[exiting "),
    lines=(
        Line(
            rf"samples/sec: *[0-9.]{{1,30}} *\| *{_ITERATION}",
            tail=rf"\|{_LAST}",
            joined=rf"{BARS}*?{_LAST}",
            form=BAR,
            fields=(
                *_COMMON,
                Field("samples/sec", "samples_per_s", PLAIN, form=r"^{name}: *{value}"),
                # The formula includes recomputation.
                Field("approx flops per GPU", "hardware_flops_per_rank", GLUED_FLOPS),
                Field("MFU", "mfu", PERCENT),
                Field("HFU", "hfu", PERCENT),
            ),
        ),
        _evaluation(rf"validation results at {_WHERE}", "valid"),
        _evaluation(rf"test results at {_WHERE}", "test"),
        *_ENDS,
    ),
)
