"""Event that describes a scheme's changes to the processes of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class AppliedScheme(Event):
    """Scheme settings in effect in the first rank when its program started."""

    NAME: ClassVar[str] = "applied"
    command: tuple[str, ...] | None
    """Command of the rank, with the arguments of the scheme."""
    environment: dict[str, Any] | None
    """Environment variables that the scheme sets, with their values in the rank."""
    setup: tuple[str, ...] | None
    """Shell lines that were executed before the command."""
    preload: str | None
    """Path of the library that is loaded first."""
    preload_sha256: str | None
    """SHA-256 of the library in hexadecimal. None if no library is loaded or the library could not be read."""
    versions: dict[str, Any] | None
    """Versions of PyTorch and of the communication libraries installed with it."""
    modules: tuple[str, ...] | None
    """Environment modules that were loaded."""
