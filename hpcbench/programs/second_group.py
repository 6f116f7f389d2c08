"""A second gloo group with the same ranks, and strings that its ranks exchange through a store.

The second group carries encoded messages. With `algorithm: auto`, the second group also carries the calls that are left
to PyTorch. The program's calls use the first group and must not interleave with these messages. All ranks create the
second group at the same call of the first group, in a separate thread so that the caller's thread does not block. The
second group has a separate store connection, because a connection that waits for a key blocks all its users.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from hpcbench.comm.topology import Topology
from hpcbench.programs import node_labels
from hpcbench.programs.collective_carrier import Collectives
from hpcbench.programs.gloo_carrier import GlooCarrier, PointToPoint
from hpcbench.programs.worker import Job

_created: Counter[str] = Counter()
"""Number of second groups, keyed by the name of the first group. The numbers are the same on all ranks of the group."""


class SecondGroup:
    """A gloo group with the ranks of another group.

    Parameters
    ----------
    group
        Group whose calls are encoded.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._name = f"group {group.group_desc}" if group.group_desc else "a group"
        self._rank, self._size = group.rank(), group.size()
        self._timeout = _timeout(group)
        store = _connect_again(distributed_c10d._get_process_group_store(group), self._timeout)
        _created[group.group_name] += 1  # the keys of an earlier group refer to its closed connections
        self._store = c10d.PrefixStore(f"hpcbench {_created[group.group_name]}", store)
        self._nodes = node_labels.read(group, store)
        self._gloo: dist.ProcessGroupGloo | None = None
        self._carrier: GlooCarrier | None = None
        self._process_group: dist.ProcessGroup | None = None

    def topology(self) -> Topology:
        """Return the node of each rank."""
        return Topology.by_label(self._nodes)

    def exchange(self, key: str, text: str) -> list[str]:
        """Publish a string of this rank, and return the strings of all ranks. Block until all ranks have published."""
        self._store.set(f"{key} {self._rank}", text)
        return [self._store.get(f"{key} {peer}").decode() for peer in range(self._size)]

    def gloo(self) -> dist.ProcessGroupGloo:
        """Return the gloo backend. The first call connects the ranks, and blocks until all ranks have called."""
        if self._gloo is None:
            self._gloo = dist.ProcessGroupGloo(self._store, self._rank, self._size, timeout=self._timeout)
        return self._gloo

    def collectives(self, device: torch.device) -> Collectives:
        """Return a private backend for byte collectives: NCCL for a GPU, gloo for the host.

        All ranks must call this method in the same operation. NCCL connects the ranks in its first collective.
        """
        if device.type == "cpu":
            return cast(Collectives, self.gloo())
        nccl: Any = dist.ProcessGroupNCCL
        options = nccl.Options()
        options._timeout = self._timeout
        backend: Collectives = nccl(c10d.PrefixStore("nccl", self._store), self._rank, self._size, options)
        return backend

    def carrier(self) -> GlooCarrier:
        """Return the carrier of encoded messages."""
        if self._carrier is None:
            self._carrier = GlooCarrier(cast(PointToPoint, self.gloo()), self._rank, self._size)
        return self._carrier

    def process_group(self) -> dist.ProcessGroup:
        """Return the group in the form that c10d operators accept."""
        if self._process_group is None:
            kind = dist.ProcessGroup.BackendType.GLOO
            group = dist.ProcessGroup(self._store, self._rank, self._size)
            group._register_backend(torch.device("cpu"), kind, self.gloo())
            group._set_default_backend(kind)
            self._process_group = group
        return self._process_group

    def reporting(self, job: Job) -> Job:
        """Wrap a job so that it reports its failure to the other ranks, which would otherwise only time out."""

        def run() -> None:
            try:
                job()
            except Exception as error:
                raise RuntimeError(self._explain(error)) from error

        return run

    def _explain(self, error: Exception) -> str:
        """Return the message of an error. If another rank failed first, append that rank's message."""
        message = f"hpcbench, rank {self._rank} of {self._name}: {type(error).__name__}: {error}"
        try:
            if self._store.check(["failed"]):
                return f"{message}; before that, {self._store.get('failed').decode()}"
            self._store.set("failed", message)
        except RuntimeError:
            return message  # the rank that hosts the store has exited
        return message


def _connect_again(store: Store, timeout: timedelta) -> Store:
    try:
        connection: Store = store.clone()  # type: ignore[attr-defined]
    except (RuntimeError, NotImplementedError):
        return store  # a store class from outside PyTorch
    connection.set_timeout(timeout)  # a clone of a FileStore has PyTorch's default timeout
    return connection


def _timeout(group: dist.ProcessGroup) -> timedelta:
    """Return the group's own timeout."""
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # a group with GPU backends only
        backend = group._get_backend(torch.device("cuda"))
    timeout: timedelta = getattr(getattr(backend, "options", None), "_timeout", distributed_c10d.default_pg_timeout)
    return timeout
