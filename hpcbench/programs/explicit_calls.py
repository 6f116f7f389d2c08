"""Calls of programs that select a codec explicitly, with a hook or a PyTorch interface object."""

import torch.distributed as dist

from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs.account import Account
from hpcbench.programs.groups import GroupCalls


class ExplicitCalls:
    """Calls of all groups that use one codec for data parallelism.

    Parameters
    ----------
    codec
        Codec name as in a study: ``int8:256``, ``zfp:8``, ``bf16``.
    feedback
        Whether to use error feedback.
    min_bytes
        Minimum size in bytes of the vectors to encode.
    """

    def __init__(self, codec: str, *, feedback: bool = False, min_bytes: int = 65536) -> None:
        rules = [
            Rule(dimension="DP", codec=codec, feedback=feedback),
            Rule(dimension="ZERO", codec=codec),
        ]
        scheme = NamedScheme(name="hook", rules=rules)
        self._settings = Interposition(
            scheme=scheme, groups=Groups(min_bytes=min_bytes, lossy=["parameters"]), out="nowhere"
        )
        self._calls: dict[str, GroupCalls] = {}

    def of(self, group: dist.ProcessGroup) -> GroupCalls:
        """Return the calls of a group."""
        calls = self._calls.get(group.group_name)
        if calls is None or calls.id != group._id():  # type: ignore[attr-defined]
            calls = self._calls[group.group_name] = GroupCalls(group, "mesh_dp", self._settings, Account())
        return calls
