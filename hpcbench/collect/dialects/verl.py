"""Log lines of verl: ``name:value`` pairs separated by hyphens. Newer versions also print the names of NumPy types.

The policy loss is not read, because it is not a cross entropy. The lines have no closing mark.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import GIB, NUMBER, PLAIN, SECONDS

_TYPE = r"(?:(?:np|numpy)\.\w{1,20}\()?"
_FORM = rf"- {{name}}:{_TYPE}{{value}}\)?(?= - |\s*$)"
_WITHIN = r"(?=(?:(?!step:[0-9])[^\n]){0,16000}?- "

VERL = Dialect(
    "verl",
    markers=("step:",),
    lines=(
        Line(
            rf"step:(?P<step>[0-9]{{1,18}}) {_WITHIN}(?:timing_s/step|perf/throughput|train/loss):)",
            end=rf"- [^\s:]{{1,200}}:{_TYPE}{NUMBER}\)?",
            form=_FORM,
            fields=(
                Field("train/loss", "loss", PLAIN),
                Field("actor/grad_norm", "gradient_norm", PLAIN),
                Field("train/grad_norm", "gradient_norm", PLAIN),
                Field("actor/lr", "lr", PLAIN),
                Field("train/lr", "lr", PLAIN),
                Field("timing_s/step", "seconds", SECONDS),
                Field("perf/time_per_step", "seconds", SECONDS),
                # Tokens of prompts and responses, divided by the time and the number of GPUs.
                Field("perf/throughput", "tokens_per_s_per_rank", PLAIN),
                Field("perf/mfu/actor", "mfu", PLAIN),
                Field("perf/max_memory_allocated_gb", "memory_bytes", GIB),
            ),
        ),
        Line(
            rf"step:(?P<step>[0-9]{{1,18}}) {_WITHIN}val/loss:)",
            end=rf"- [^\s:]{{1,200}}:{_TYPE}{NUMBER}\)?",
            form=_FORM,
            fields=(Field("val/loss", "valid", PLAIN),),
            kind="evaluation",
        ),
    ),
)
