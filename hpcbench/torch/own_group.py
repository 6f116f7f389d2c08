"""The gloo group that carries a group's encoded messages, and what its ranks tell each other beside them.

The caller's own calls must not get between the messages of a plan. So these travel over a second group with the same
ranks, which is made at the first encoded call: all ranks of the group make that call. Nobody waits for it in the
caller's thread, and it has a connection to the store of its own: one that waits keeps all others from using it.
"""

from collections import Counter
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from hpcbench.comm.topology import Topology
from hpcbench.torch import node_labels
from hpcbench.torch.gloo_carrier import GlooCarrier, PointToPoint
from hpcbench.torch.worker import Job

_made: Counter[str] = Counter()
"""How often encoded operations were made for the group of a name: the same on all of its ranks."""


class OwnGroup:
    """The second group of a group's ranks. All of them make one, at the same call of the group.

    Parameters
    ----------
    group
        The group whose calls are encoded.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._name = f"group {group.group_desc}" if group.group_desc else "a group"
        self._rank, self._size = group.rank(), group.size()
        store = _connect_again(distributed_c10d._get_process_group_store(group))
        _made[group.group_name] += 1  # the keys of an earlier group lead to its closed connections
        self._store = c10d.PrefixStore(f"hpcbench {_made[group.group_name]}", store)
        self._nodes = node_labels.read(group, store)
        self._timeout = _timeout(group)
        self._gloo: dist.ProcessGroupGloo | None = None
        self._carrier: GlooCarrier | None = None

    def topology(self) -> Topology:
        """The nodes of the ranks."""
        return Topology.by_label(self._nodes)

    def told_by_all(self, what: str, text: str) -> list[str]:
        """Tell all ranks a text. The result is what each of them has told."""
        self._store.set(f"{what} {self._rank}", text)
        return [self._store.get(f"{what} {peer}").decode() for peer in range(self._size)]

    def group(self) -> dist.ProcessGroupGloo:
        """The second group itself. It is made by the thread that uses it first."""
        if self._gloo is None:
            self._gloo = dist.ProcessGroupGloo(self._store, self._rank, self._size, timeout=self._timeout)
        return self._gloo

    def carrier(self) -> GlooCarrier:
        """What carries the messages."""
        if self._carrier is None:
            self._carrier = GlooCarrier(cast(PointToPoint, self.group()), self._rank, self._size)
        return self._carrier

    def told(self, job: Job) -> Job:
        """A job that tells the other ranks why it failed: they see only that messages do not come."""

        def run() -> None:
            try:
                job()
            except Exception as error:
                raise RuntimeError(self._reason(error)) from error

        return run

    def _reason(self, error: Exception) -> str:
        """The words of an error, and of the rank that failed first if that was another one."""
        words = f"hpcbench, rank {self._rank} of {self._name}: {type(error).__name__}: {error}"
        try:
            if self._store.check(["failed"]):
                return f"{words}; before that, {self._store.get('failed').decode()}"
            self._store.set("failed", words)
        except RuntimeError:
            return words  # the rank that holds the store is gone
        return words


def _connect_again(store: Store) -> Store:
    try:
        connection: Store = store.clone()  # type: ignore[attr-defined]
        return connection
    except (RuntimeError, NotImplementedError):
        return store  # a store that somebody else has written


def _timeout(group: dist.ProcessGroup) -> timedelta:
    """How long the group itself waits."""
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # a group of GPUs alone
        backend = group._get_backend(torch.device("cuda"))
    timeout: timedelta = getattr(getattr(backend, "options", None), "_timeout", distributed_c10d.default_pg_timeout)
    return timeout
