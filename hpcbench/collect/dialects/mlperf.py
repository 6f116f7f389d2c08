"""Log lines of MLPerf Training: JSON after ``:::MLLOG``.

``eval_accuracy`` is not read, because it is a loss in some benchmarks and an accuracy in others.
"""

from dataclasses import replace

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.units import PLAIN, SECONDS

_FORM = r'"{name}": *{value}(?=[,}\s])'
_UP_TO = r"(?:(?!:::MLLOG)[^\n]){0,4000}?"
_KEYS = r'"key": *"(?:tracked_stats|train_loss|training_stats|throughput)"'


def _step(number: str) -> str:
    return rf'(?={_UP_TO}{_KEYS})(?={_UP_TO}"{number}": *(?P<step>[0-9]{{1,18}})[,}}\s])'


_STATISTICS = Line(
    r":::MLLOG \{" + _step("step"),
    tail=r'"metadata": *\{[^{}]{0,2000}\} *\}',
    form=_FORM,
    fields=(
        Field("throughput", "samples_per_s", PLAIN),
        Field("train_step_time", "seconds", SECONDS),
        Field("train_loss", "loss", PLAIN),
        Field("reduced_train_loss", "loss", PLAIN),
        Field("value", "loss", PLAIN, form=r'"key": *"train_loss", *"{name}": *{value}(?=[,}\s])'),
    ),
)

_PRECISION = Line(
    r":::MLLOG \{(?="
    + _UP_TO
    + r'"key": *"lowest_numerical_precision_in_(?P<part>comm|linear)", *'
    + r'"value": *"(?P<format>[A-Za-z0-9_.:+/-]{1,40})"[,}\s])',
    kind="precision",
)

MLPERF = Dialect(
    "MLPerf",
    markers=(":::MLLOG",),
    lines=(
        _STATISTICS,
        _PRECISION,
        replace(_STATISTICS, head=r":::MLLOG \{" + _step("step_num")),
        replace(
            _STATISTICS,
            head=r":::MLLOG \{" + _step("samples_count"),
            note="the log numbers its lines by processed samples: step numbers are numbers of samples",
        ),
        Line(
            r":::MLLOG \{(?=" + _UP_TO + r'"key": *"(?:eval_loss|validation_loss|val_loss)")'
            r"(?=" + _UP_TO + r'"(?:step|step_num|samples_count)": *(?P<step>[0-9]{1,18})[,}\s])',
            tail=_STATISTICS.tail,
            form=_FORM,
            fields=(Field("value", "valid", PLAIN),),
            kind="evaluation",
        ),
        Line(
            r":::MLLOG \{(?=" + _UP_TO + r'"key": *"run_stop"' + _UP_TO + r'"status": *"success")',
            kind="end",
            state="completed",
        ),
        Line(
            r":::MLLOG \{(?=" + _UP_TO + r'"key": *"run_stop"' + _UP_TO + r'"status": *"aborted")',
            kind="end",
            state="stopped",
        ),
    ),
)
