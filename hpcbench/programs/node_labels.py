"""Nodes of a group's ranks. Each rank publishes its node when the group is created.

All ranks create the group at the same time, but they may make their first encoded calls at different times. A rank may
still be busy with another group or thread, so waiting for its answer during a call could deadlock.
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
"""Number of times that the ranks of each group have published their nodes, which is the same on all ranks."""


def publish(group: dist.ProcessGroup, store: Store) -> None:
    """Publish this rank's node to the other ranks of a group, without waiting for them."""
    _published[group.group_name] += 1
    # ranks of the same torchrun agent share a node
    label = f"{socket.gethostname()} {os.environ.get('GROUP_RANK', '')}"
    store.set(_key(group, group.rank()), label)


def read(group: dist.ProcessGroup, store: Store) -> list[str]:
    """Return the nodes of all ranks. Block only if the nodes were not published when the group was created."""
    if not _published[group.group_name]:
        publish(group, store)
    return [store.get(_key(group, rank)).decode() for rank in range(group.size())]


def _key(group: dist.ProcessGroup, rank: int) -> str:
    return f"hpcbench node {_published[group.group_name]} of {rank}"


class NodeLabels:
    """Publisher of this rank's node for all existing and new groups."""

    def __init__(self) -> None:
        self._real: Any = None

    def watch(self) -> None:
        """Publish this rank's node in each new group from now on."""
        if dist.is_initialized():
            for group, (_, store) in list(distributed_c10d._world.pg_map.items()):
                publish(group, store)
        real = self._real = getattr(distributed_c10d, _MAKES_GROUP)

        def watched(*args: Any, **kwargs: Any) -> Any:
            group, store = real(*args, **kwargs)
            if store is not None:  # this rank belongs to the group
                publish(group, store)
            return group, store

        setattr(distributed_c10d, _MAKES_GROUP, watched)

    def unwatch(self) -> None:
        """Stop publishing."""
        setattr(distributed_c10d, _MAKES_GROUP, self._real)
