"""Python kernels for c10d operators at the dispatch key BackendSelect, above all devices and below autograd.

All calls reach these kernels: from Python, DDP's C++ reducer, functional collectives, and compiled graphs. Only small
calls from Python use a shortcut. Unencoded calls are redispatched to lower keys and run in PyTorch's kernel without
holding the GIL. The program's process groups are unchanged.
"""

import atexit
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook

from hpcbench.contract.interpose import Interposition
from hpcbench.errors import UserError
from hpcbench.programs.account import Account
from hpcbench.programs.groups import GroupCalls
from hpcbench.programs.meshes import MeshNames
from hpcbench.programs.node_labels import NodeLabels
from hpcbench.programs.operators import Operators
from hpcbench.programs.schemas import ARGUMENTS, COUNTED, strange, unknown
from hpcbench.programs.small_calls import SmallCalls
from hpcbench.programs.step_traces import StepTraces
from hpcbench.programs.timeouts import TimedWait

OLDEST = (2, 13)
"""Oldest torch version used in tests."""
_BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
_PATIENCE_S = 5.0
log = logging.getLogger("hpcbench.torch")


class Interception:
    """Interception of c10d operators, from `install` to `remove`.

    Parameters
    ----------
    settings
        The user's scheme and groups file.

    Raises
    ------
    UserError
        The installed torch version is too old.
    """

    def __init__(self, settings: Interposition) -> None:
        version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        if version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UserError(f"torch {torch.__version__}: hpcbench run needs torch {oldest} or later: upgrade torch")
        self.account = Account()
        self._settings = settings
        self._groups: dict[str, GroupCalls] = {}
        self._by_group: dict[dist.ProcessGroup, GroupCalls] = {}
        """Calls, keyed by process group, because a lookup of the group's name in each call would be slow.

        The cache is cleared when a mesh names another group.
        """
        self._meshes = MeshNames(self._by_group.clear)
        self._nodes = NodeLabels()
        self._waits = TimedWait()
        self._small = SmallCalls(self._by_group)
        self._operators = Operators(self.account)
        self._library: torch.library.Library | None = None
        self._hook: Any = None

    def install(self) -> None:
        """Register the kernels. Operators with unexpected arguments are not intercepted."""
        library = self._library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
        for name, handler in self._operators.handlers.items():
            self._register(library, name, handler)
        for name in COUNTED:
            self._register(library, name, _count(name))
        for name in unknown():
            log.warning("hpcbench: c10d.%s is not supported: its calls are sent uncompressed and not counted", name)
        self._meshes.watch()
        self._nodes.watch()
        self._waits.watch()
        self._small.watch()
        self._hook = register_optimizer_step_post_hook(self._stepped)

    def remove(self) -> None:
        """Remove the kernels and stop the threads."""
        if self._library is not None:
            self._library._destroy()  # type: ignore[no-untyped-call]
            self._library = None
            self._meshes.unwatch()
            self._nodes.unwatch()
            self._waits.unwatch()
            self._small.unwatch()
            self._hook.remove()
        for group in self._groups.values():
            group.stop(_PATIENCE_S)

    def at_exit(self) -> None:
        """Write this rank's file and stop the threads."""
        try:
            self.account.write(Path(self._settings.out))
        except OSError as error:
            log.warning("hpcbench: the traffic counts of this rank cannot be written: %s", error)
        self.remove()

    def _stepped(self, *about: object) -> None:
        for group in self._groups.values():
            group.stepped()

    def _register(self, library: torch.library.Library, name: str, handler: Callable[..., Any]) -> None:
        operator = getattr(torch.ops.c10d, name).default
        difference = strange(name, operator._schema)
        if difference:
            log.warning("hpcbench: %s: its calls are sent uncompressed and not counted", difference)
            return
        where, by_group = ARGUMENTS[name].index("process_group"), self._by_group

        def kernel(keys: Any, *args: Any) -> Any:
            def plain(first: Any, other_group: ProcessGroup | None = None) -> Any:
                replaced = [first, *args[1:]]
                if other_group is not None:
                    replaced[where] = other_group.boxed()
                return operator.redispatch(keys & _BELOW, *replaced)

            group = ProcessGroup.unbox(args[where])
            calls = by_group.get(group) or self._calls(group)
            result = None if calls is None else handler(calls, plain, *args)
            return operator.redispatch(keys & _BELOW, *args) if result is None else result

        library.impl(name, kernel, "BackendSelect", with_keyset=True)  # type: ignore[no-untyped-call]

    def _calls(self, group: dist.ProcessGroup) -> GroupCalls | None:
        """Return the calls of a group, or None if torch.distributed does not list the group and its ranks."""
        name = group.group_name
        calls = self._groups.get(name)
        description = self._meshes.described(name, group.group_desc)
        if calls is not None and calls.id == group._id() and calls.description == description:  # type: ignore[attr-defined]
            self._by_group[group] = calls
            return calls
        if not dist.is_initialized() or group not in distributed_c10d._world.pg_group_ranks:
            return None
        if calls is not None:
            calls.stop(0.0)  # another group with this name exists, or a mesh has renamed this group
            self._by_group.clear()
        self.account.rank, self.account.world = dist.get_rank(), dist.get_world_size()
        calls = GroupCalls(group, description, self._settings, self.account)
        self._groups[name] = self._by_group[group] = calls
        return calls


def _count(name: str) -> Callable[..., Any]:
    """Return a handler that counts the calls of an operator."""

    def handler(calls: GroupCalls, _: Callable[..., Any], first: Any, *_rest: Any) -> None:
        calls.exact(name.strip("_"), list(_tensors(first)))

    return handler


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors(part)]


def start(settings: Interposition) -> Interception:
    """Install the kernels for the rest of the process."""
    interception = Interception(settings)
    interception.install()
    if settings.trace is not None:
        StepTraces(settings.trace).watch()
    atexit.register(interception.at_exit)
    return interception
