"""Settings that `hpcbench run` passes to the ranks of a user's program, in one environment variable."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.section import Count, File, Section
from hpcbench.contract.text import make_printable

VARIABLE = "HPCBENCH_TORCH"
"""Variable that holds the settings as JSON. Where it is not set, `import torch` is left alone."""

Meaning = Literal["DP", "TP", "SP", "CP", "PP", "EP", "EXACT"]
"""Parallel dimension of a group; EXACT: its messages are never encoded."""


def compile_expression(text: str) -> re.Pattern[str]:
    """Return a regular expression of the user's.

    Raises
    ------
    ValueError
        It is none, or one beyond what Python can read.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression ({make_printable(str(error))})") from None


class GroupPattern(Section):
    """A dimension for the groups whose description matches, or that span axes of the layout."""

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
            raise ValueError("give match or axes, and not both: they select the groups")
        return self


class Axis(Section):
    """One dimension of a declared layout."""

    dimension: Meaning = Field(description="The dimension.")
    size: Count = Field(description="Number of ranks.")


class Groups(Section):
    """Parallel dimensions of a program's groups, and which of its messages may be lossy."""

    groups: list[GroupPattern] = Field(
        default_factory=list, description="Dimensions by description; the first that matches goes before all else."
    )
    layout: list[Axis] = Field(
        default_factory=list,
        description="Sizes of the dimensions, the outermost first. A group without a description has the dimension "
        "along which its ranks lie; over DP and CP together it is DP. A message in such a group has the dimension in "
        "which its two ranks differ.",
    )
    min_bytes: int = Field(65536, ge=0, le=2**40, description="Smaller messages are never encoded.")
    lossy: list[Literal["parameters", "functional-gathers", "sums-outside-backward"]] = Field(
        default_factory=list,
        description="What may be lossy though it may be no gradient or activation: gathers of parameters, gathers by "
        "functional collectives (sequence parallelism, but full_tensor() and state dicts as well), and sums over "
        "replicas outside a backward pass (gradients that the program sums itself, but averages of parameters and "
        "counts as well).",
    )
    cuda: bool = Field(
        False,
        description="Encode sums and gathers of tensors on GPUs, too. Experimental: it has run on an emulated device "
        "only, its messages pass through the host and not NCCL, and it needs CuPy: `pip install cupy-cuda13x`, or "
        "`cupy-cuda12x` for CUDA 12.",
    )


class TracedSteps(Section):
    """Steps that each rank traces. A step ends with the optimizer's step."""

    directory: File = Field(description="Directory that receives a trace from each rank.")
    wait: int = Field(3, ge=0, description="Number of steps before the traced ones, after the first.")
    active: int = Field(3, ge=1, description="Number of traced steps.")


class Interposition(Section):
    """Settings of the interposition on one rank."""

    scheme: NamedScheme
    groups: Groups = Field(default_factory=Groups)
    dry: bool = Field(False, description="Only count.")
    out: File = Field(description="Directory that receives a file from each rank.")
    trace: TracedSteps | None = Field(None, description="Steps to trace.")
