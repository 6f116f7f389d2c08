"""Base class with strict validation, and string types, for the sections of study, site and run files."""

import os.path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of studies, sites and schemes. These names become parts of paths, job names and scripts."""
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"
"""Names of accounts and queues, which site administrators choose."""
MAIL = r"^[A-Za-z0-9][A-Za-z0-9._+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?$"
"""Mail addresses and user names that need no quoting in any shell or scheduler."""
LINE = r"^[^\x00-\x1f\x7f]*$"
PATH = r"^[^\x00]*$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
OPTION = r"^--?[A-Za-z][A-Za-z0-9_-]*$"
SHARE = r"^[0-9]+(/[1-9][0-9]*)?$"
DIRECTORY = r"^/[^:,\x00-\x1f\x7f]*$"
# hpcbench.contract.problems has a message for each of these patterns.

Name = Annotated[str, Field(pattern=NAME)]
Label = Annotated[str, Field(pattern=LABEL)]
MailAddress = Annotated[str, Field(pattern=MAIL, max_length=200)]
Line = Annotated[str, Field(pattern=LINE, max_length=4096)]
"""Text that fits on one line of a job script."""
File = Annotated[str, Field(min_length=1, max_length=4096, pattern=PATH), AfterValidator(os.path.expanduser)]
"""Path of a file or directory. `~` is expanded as in a shell."""
PathLine = Annotated[Line, AfterValidator(os.path.expanduser)]
"""Path that fits on one line of a job script. `~` is expanded as in a shell."""
Variable = Annotated[str, Field(pattern=VARIABLE, max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Precision = Literal["fp64", "fp32", "bf16", "fp16"]
"""Number format of weights and activations."""
Scalar = str | int | float | bool | None

S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """A part of a file. Unknown keys are errors, and types are strict: the string `"3"` is not a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    def changed(self: S, **values: Any) -> S:
        """Return a copy with some values changed, checked like any other section.

        Raises
        ------
        ValidationError
            A value is invalid, or the field does not exist.
        """
        return type(self).model_validate({**vars(self), **values})


class Feature(Section):
    """The settings of a feature in `Train`."""

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return why the settings are invalid for a run of this length, or None if they are valid."""
        return None


class Misfit(NamedTuple):
    """A setting that contradicts other settings."""

    field: tuple[str, ...]
    """Section and field of the setting, such as ``("layout", "tp")``."""
    problem: str
    """What is wrong, and what to do."""

    def __str__(self) -> str:
        return f"{'.'.join(self.field)}: {self.problem}"
