"""Log lines of LitGPT. An iteration is a micro-batch, and the printed times are iteration times."""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import MILLISECONDS, NUMBER, PLAIN

_FORM = r"(?:^|[\s|,:]){name}: *{value}(?=[\s,|]|$)"

LITGPT = Dialect(
    "LitGPT",
    markers=("iter ",),
    lines=(
        Line(
            r"iter (?P<step>[0-9]{1,18}) step [0-9]{1,18}(?: \||:)(?=\s*loss train: )",
            tail=r"iter time: *[0-9.]{1,30} *ms",
            joined=rf"\s*loss train: *{NUMBER}, *val: *(?:{NUMBER}|n/a) *\| *iter time: *[0-9.]{{1,30}} *ms",
            form=_FORM,
            fields=(
                Field("loss train", "loss", PLAIN),
                Field("iter time", "seconds", MILLISECONDS),
            ),
            note="LitGPT's iterations are micro-batches: step numbers and step times refer to iterations",
        ),
        Line(
            r"iter (?P<step>[0-9]{1,18})(?=: val loss )",
            tail=r", val time: *[0-9.]{1,30} *ms",
            form=r": {name} *{value}(?=,)",
            fields=(Field("val loss", "valid", PLAIN),),
            kind="evaluation",
        ),
    ),
)
