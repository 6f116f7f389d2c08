"""What all parts of a study and a site have in common: strictness, and the strings that they hold."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of studies, sites and schemes: they become parts of paths, job names and scripts."""

Name = Annotated[str, Field(pattern=NAME)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]
"""Names that others gave: accounts and queues."""
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]
"""Text that stays on one line of a job script."""
File = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
"""Path of a file or directory."""
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Precision = Literal["fp64", "fp32", "bf16", "fp16"]
"""Of weights and activations."""
Scalar = str | int | float | bool | None


class Section(BaseModel):
    """Unknown keys are errors, and types are taken literally: `"3"` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
