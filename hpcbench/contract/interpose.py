"""Settings that `hpcbench run` passes to a user program's ranks in an environment variable."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.section import Count, File, Section
from hpcbench.contract.text import make_printable

VARIABLE = "HPCBENCH_TORCH"
"""Environment variable with the settings as JSON. If the variable is not set, `import torch` is unchanged."""

Meaning = Literal["DP", "TP", "SP", "CP", "PP", "EP", "EXACT"]
"""Parallel dimension of a group. Messages in EXACT groups are never encoded."""


def compile_expression(text: str) -> re.Pattern[str]:
    """Compile a user's regular expression."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression ({make_printable(str(error))})") from None


class GroupPattern(Section):
    """Dimension of process groups, which are selected by description or by the axes that they span."""

    match: str | None = Field(None, description="Regular expression, searched for in the group's description.")
    axes: list[Meaning] | None = Field(
        None,
        description="In place of `match`: dimensions of the axes of `layout` that a group without a description spans.",
    )
    dimension: Meaning = Field(description="Dimension of these groups; EXACT: never encode their messages.")

    @field_validator("match")
    @classmethod
    def _compiles(cls, match: str | None) -> str | None:
        if match is not None:
            compile_expression(match)
        return match

    @model_validator(mode="after")
    def _selects(self) -> "GroupPattern":
        if (self.match is None) == (self.axes is None):
            raise ValueError("give either match or axes to select the groups, not both")
        return self


class Axis(Section):
    """A dimension of a declared layout."""

    dimension: Meaning = Field(description="The dimension.")
    size: Count = Field(description="Number of ranks.")


class Groups(Section):
    """Parallel dimensions of a program's process groups, and the messages that may be lossy."""

    groups: list[GroupPattern] = Field(
        default_factory=list,
        description="Dimensions of groups, by description or axes. The first match takes precedence over all else.",
    )
    layout: list[Axis] = Field(
        default_factory=list,
        description="Sizes of the dimensions, outermost first. A group without a description has the dimension along "
        "which its ranks differ; a group over DP and CP together is DP. A message in such a group has the dimension in "
        "which its two ranks differ.",
    )
    min_bytes: int = Field(65536, ge=0, le=2**40, description="Smaller messages are never encoded.")
    lossy: list[Literal["parameters", "functional-gathers", "sums-outside-backward"]] = Field(
        default_factory=list,
        description="Calls that may be lossy although they may carry other values than gradients and activations. "
        "parameters: gathers of parameters; functional-gathers: gathers with functional collectives (sequence "
        "parallelism, but also full_tensor() and state dicts); sums-outside-backward: sums over replicas outside the "
        "backward pass (gradients that the program sums itself, but also averages of parameters and counts).",
    )
    cuda: bool = Field(
        False,
        description="Also encode sums and gathers of tensors on GPUs. Experimental, tested only on an emulated device: "
        "its messages go through the host and not NCCL. It needs CuPy: `pip install cupy-cuda13x`, or "
        "`cupy-cuda12x` for CUDA 12.",
    )


class TracedSteps(Section):
    """Steps that each rank traces. A step ends when `Optimizer.step` returns."""

    directory: File = Field(description="Directory that receives a trace from each rank.")
    wait: int = Field(3, ge=0, description="Number of steps to skip after the first one before tracing.")
    active: int = Field(3, ge=1, description="Number of traced steps.")


class Interposition(Section):
    """Interposition settings of a rank."""

    scheme: NamedScheme
    groups: Groups = Field(default_factory=Groups)
    dry: bool = Field(False, description="Only count calls, do not change them.")
    out: File = Field(description="Directory that receives a file from each rank.")
    trace: TracedSteps | None = Field(None, description="Steps to trace.")
