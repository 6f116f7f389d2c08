"""Description of the changes that a scheme makes to the processes of a run."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.contract.event.applied import AppliedScheme
from hpcbench.contract.scheme import NamedScheme
from hpcbench.versions import packages

_PACKAGES = r"torch|nvidia-nccl-.*|rccl.*|deepspeed|megatron-core|transformer-engine|torchft.*"
"""Python distributions that determine how a program communicates."""


def describe_applied(scheme: NamedScheme, command: Sequence[str], variables: Mapping[str, str]) -> AppliedScheme:
    """Describe the process that a rank will execute.

    Parameters
    ----------
    command
        Command of the rank.
    variables
        Environment of the command.
    """
    return AppliedScheme(
        command=tuple(command),
        environment={name: variables.get(name) for name in scheme.environment},
        setup=tuple(scheme.setup),
        preload=scheme.preload,
        preload_sha256=_hash_file(scheme.preload) if scheme.preload else None,
        versions=_find_versions(),
        modules=tuple(name for name in variables.get("LOADEDMODULES", "").split(":") if name),
    )


def _find_versions() -> dict[str, str]:
    versions = packages().items()
    return {name: version for name, version in versions if re.fullmatch(_PACKAGES, name.lower().replace("_", "-"))}


def _hash_file(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()
