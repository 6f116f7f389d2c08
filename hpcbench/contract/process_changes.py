"""Checks of the changes that a scheme makes to processes: environment variables, arguments, and a preloaded library."""

import re
import shlex
from collections.abc import Mapping, Sequence

_FIXED = (
    (
        r"PATH|LD_.*|PYTHON.*|VIRTUAL_ENV|BASH_ENV|ENV",
        "changes which programs and libraries run, not how they communicate (for a library, use preload)",
    ),
    (r"HPCBENCH_.*", "is set by hpcbench"),
    (r"OMP_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES", "follows from the site and the layout"),
)
"""Environment variables that must be identical in all compared runs, with the reasons."""


def check_environment(environment: dict[str, str]) -> dict[str, str]:
    """Check that a scheme may set these environment variables."""
    for name in environment:
        for pattern, reason in _FIXED:
            if re.fullmatch(pattern, name):
                raise ValueError(f"{name} {reason}: if all runs need this variable, set it in the site file")
    return environment


def format_assignments(environment: Mapping[str, str]) -> str:
    """Format a scheme's environment variables as shell assignments."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())


def describe_changes(
    *, environment: Mapping[str, str], arguments: str, preload: str | None, setup: Sequence[str]
) -> str:
    """Describe in one phrase how a scheme changes processes. Return an empty string if it does not change them."""
    changes = [
        f"environment {format_assignments(environment)}" if environment else "",
        f"arguments {arguments}" if arguments else "",
        f"preload {preload}" if preload else "",
        f"setup {'; '.join(setup)}" if setup else "",
    ]
    return ", ".join(filter(None, changes))


def split_arguments(arguments: str) -> list[str]:
    """Split a scheme's arguments according to shell syntax.

    Raises
    ------
    ValueError
        A quotation is not closed.
    """
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise ValueError(f"is not valid shell syntax ({error}): close the quote") from None


def check_preload(path: str | None) -> str | None:
    """Check that a path can be used in LD_PRELOAD."""
    odd = next((char for char in path or "" if char in ": \t\n"), None)
    if odd is not None:
        raise ValueError(f"has {odd!r}, which separates libraries in LD_PRELOAD: link the file under another name")
    return path
