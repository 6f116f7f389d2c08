"""The nodes of a group's ranks, which each rank publishes when the group is made.

All ranks of the group make it at the same time. Their first encoded call need not come at the same time: a rank may
begin with another group, or in another thread, and would wait for a rank that waits for it.
"""

import os
import socket
from collections import Counter
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

_MAKES_GROUP = "_new_process_group_helper"
_published: Counter[str] = Counter()
"""Number of times that the ranks of a group have published their nodes: the same on all of them."""


def publish(group: dist.ProcessGroup, store: Store) -> None:
    """Publish the node of this rank to the other ranks of a group, without waiting for them."""
    _published[group.group_name] += 1
    # ranks of one agent of torchrun are on one node
    label = f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}"
    store.set(_key(group, group.rank()), label)


def read(group: dist.ProcessGroup, store: Store) -> list[str]:
    """Return the nodes of all ranks. It blocks only for ranks of a group that was made in an unknown way."""
    if not _published[group.group_name]:
        publish(group, store)
    return [store.get(_key(group, rank)).decode() for rank in range(group.size())]


def _key(group: dist.ProcessGroup, rank: int) -> str:
    return f"hpcbench node {_published[group.group_name]} of {rank}"


class NodeLabels:
    """Publisher of the node of this rank, for each group that exists or is made later."""

    def __init__(self) -> None:
        self._real: Any = None

    def watch(self) -> None:
        """Publish the node of this rank in each group from now on."""
        if dist.is_initialized():
            for group, (_, store) in list(distributed_c10d._world.pg_map.items()):
                publish(group, store)
        real = self._real = getattr(distributed_c10d, _MAKES_GROUP)

        def watched(*args: Any, **kwargs: Any) -> Any:
            group, store = real(*args, **kwargs)
            if store is not None:  # this rank is in the group
                publish(group, store)
            return group, store

        setattr(distributed_c10d, _MAKES_GROUP, watched)

    def unwatch(self) -> None:
        """Stop publishing."""
        setattr(distributed_c10d, _MAKES_GROUP, self._real)
