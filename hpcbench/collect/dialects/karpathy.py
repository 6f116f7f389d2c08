"""Log lines of nanoGPT and llm.c. nanoGPT and the CPU version of llm.c count steps from 0."""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import MILLISECONDS, NUMBER, PERCENT, PLAIN

_WORD = r"(?:^|[\s|,(]){name} {value}(?=[\s|,)%]|ms|$)"

NANOGPT = Dialect(
    "nanoGPT",
    markers=("iter ", "step "),
    lines=(
        Line(
            r"iter (?P<step>[0-9]{1,18}): (?=loss )",
            tail=r", mfu -?[0-9]{1,9}\.[0-9]{2}%",
            joined=rf"loss {NUMBER}, time {NUMBER}ms, mfu -?[0-9]{{1,9}}\.[0-9]{{2}}%",
            end=r"loss [^,]{1,40}, time [0-9]{1,18}\.[0-9]{2}ms",  # without mfu until 2023
            form=_WORD,
            fields=(
                Field("loss", "loss", PLAIN),
                Field("time", "seconds", MILLISECONDS),
                Field("mfu", "mfu", PERCENT),
            ),
        ),
        Line(
            r"step (?P<step>[0-9]{1,18}): (?=train loss [^,]{1,40}, val loss )",
            tail=r"val loss (?:[0-9]{1,9}\.[0-9]{4}(?![0-9])|nan|inf)",
            form=_WORD,
            fields=(Field("train loss", "train", PLAIN), Field("val loss", "valid", PLAIN)),
            kind="evaluation",
        ),
    ),
)

_BEHIND = r"[\s|(,]{value} {name}(?!\w)"
_SPEED = (
    Field("ms", "seconds", MILLISECONDS, form=_BEHIND),
    Field("tok/s", "tokens_per_s", PLAIN, form=_BEHIND),
)
_OF = r"step +(?P<step>[0-9]{1,18})/(?P<steps>[0-9]{1,18})"

LLM_C = Dialect(
    "llm.c",
    markers=("step ", "val loss ", "total average iteration time"),
    lines=(
        Line(
            rf"{_OF} \| (?=loss )",
            tail=r" [0-9]{1,18} tok/s",
            joined=rf"loss {NUMBER} \([^()]{{1,20}}\)\| norm {NUMBER} \([^()]{{1,20}}\)\| lr {NUMBER} \| {NUMBER} ms"
            rf" \| {NUMBER}% bf16 MFU \| [0-9]{{1,18}} tok/s",
            form=_WORD,
            fields=(
                Field("loss", "loss", PLAIN),
                Field("norm", "gradient_norm", PLAIN),
                Field("lr", "lr", PLAIN),
                Field("bf16 MFU", "mfu", PERCENT, form=_BEHIND),
                *_SPEED,
            ),
            note="tokens/s are llm.c's moving average, not the speed of a single step",
        ),
        Line(
            rf"{_OF} \| (?=train loss )",
            tail=r" [0-9]{1,18} tok/s\)",
            joined=rf"train loss {NUMBER} \| norm {NUMBER} \| lr {NUMBER} \| \({NUMBER} ms \| [0-9]{{1,18}} tok/s\)",
            form=_WORD,
            fields=(
                Field("train loss", "loss", PLAIN),
                Field("norm", "gradient_norm", PLAIN),
                Field("lr", "lr", PLAIN),
                *_SPEED,
            ),
        ),
        Line(
            rf"{_OF}: (?=train loss )",
            tail=r" [0-9]{1,18} tok/s\)",
            joined=rf"train loss {NUMBER} \({NUMBER} ms, [0-9]{{1,18}} tok/s\)",
            form=_WORD,
            fields=(Field("train loss", "loss", PLAIN), *_SPEED),
        ),
        Line(
            r"step (?P<step>[0-9]{1,18}): (?=train loss [^,(]{1,40} \(took )",
            tail=r" ms\)",
            form=_WORD,
            fields=(Field("train loss", "loss", PLAIN), _SPEED[0]),
        ),
        Line(
            r"(?=val loss )",
            end=r"val loss (?:[0-9]{1,9}\.[0-9]{6,20}|nan|inf)",
            form=_WORD,
            fields=(Field("val loss", "valid", PLAIN),),
            kind="evaluation",
        ),
        Line(r"total average iteration time: ", kind="end", state="completed"),
    ),
)
