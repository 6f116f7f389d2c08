"""All dialects, and the table of quantities that hpcbench reads from logs."""

from hpcbench.collect.dialects.deepspeed import DEEPSPEED
from hpcbench.collect.dialects.dialect import Dialect, Line
from hpcbench.collect.dialects.huggingface import NANOTRON, PICOTRON
from hpcbench.collect.dialects.karpathy import LLM_C, NANOGPT
from hpcbench.collect.dialects.litgpt import LITGPT
from hpcbench.collect.dialects.maxtext import MAXTEXT
from hpcbench.collect.dialects.megatron import MEGATRON, NEOX
from hpcbench.collect.dialects.mlperf import MLPERF
from hpcbench.collect.dialects.nemo import AUTOMODEL, NEMO
from hpcbench.collect.dialects.torchtitan import TORCHTITAN
from hpcbench.collect.dialects.transformers import trainer
from hpcbench.collect.dialects.verl import VERL

TRANSFORMERS = trainer(DEEPSPEED)
DIALECTS: tuple[Dialect, ...] = (
    # Lines of GPT-NeoX and NeMo contain text that looks like a Megatron line.
    NEOX,
    NEMO,
    MEGATRON,
    DEEPSPEED,
    TORCHTITAN,
    NANOTRON,
    PICOTRON,
    NANOGPT,
    LLM_C,
    MAXTEXT,
    AUTOMODEL,
    LITGPT,
    VERL,
    MLPERF,
    TRANSFORMERS,
)
"""All dialects, in the order in which they are matched against a line."""


def markdown() -> str:
    """Return the table in docs/reference/logs.md: each quantity, with the name that the framework prints."""
    rows = ["| framework | printed | unit | becomes |", "| --- | --- | --- | --- |"]
    for dialect in DIALECTS:
        seen: set[str] = set()
        for line in dialect.lines:
            for row in _rows(line):
                if row not in seen:
                    rows.append(f"| {'' if seen else dialect.name} {row}")
                    seen.add(row)
    return "\n".join(rows) + "\n"


def _rows(line: Line) -> list[str]:
    rows = []
    for field in line.fields:
        becomes = f"evaluation, {field.attribute}" if line.kind == "evaluation" else f"`{field.attribute}`"
        summed = ", summed up" if field.since_last else ""
        rows.append(f"| `{field.name}` | {field.unit.name} | {becomes}{summed} |")
    if line.kind == "overflow":
        rows.append("| a line for each overflow | | `skipped`, counted |")
    return rows
