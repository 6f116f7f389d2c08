"""Python kernels on c10d's operators at the dispatch key BackendSelect: above all devices, below autograd.

Every caller passes there: Python, DDP's reducer in C++, functional collectives, compiled graphs. A call that is not
encoded is redispatched to the keys below: the kernel that would have run without us, with the interpreter's lock
released. Groups stay the groups that the program has made.
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
from hpcbench.torch.account import Account
from hpcbench.torch.groups import GroupCalls
from hpcbench.torch.meshes import MeshNames
from hpcbench.torch.node_labels import NodeLabels
from hpcbench.torch.operators import Operators
from hpcbench.torch.schemas import ARGUMENTS, COUNTED, strange, unknown
from hpcbench.torch.step_traces import StepTraces
from hpcbench.torch.timeouts import TimedWait

OLDEST = (2, 13)
"""The oldest torch that the tests have run with."""
_BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
_PATIENCE_S = 5.0
log = logging.getLogger("hpcbench.torch")


class Interception:
    """The kernels, from `install` to `remove`.

    Parameters
    ----------
    settings
        What the user asked for.

    Raises
    ------
    UserError
        The installed torch is too old.
    """

    def __init__(self, settings: Interposition) -> None:
        version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        if version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UserError(f"torch {torch.__version__}: hpcbench run needs torch {oldest} or later: upgrade it")
        self.account = Account()
        self._settings = settings
        self._groups: dict[str, GroupCalls] = {}
        self._known: dict[dist.ProcessGroup, GroupCalls] = {}
        """The same by the groups themselves, until a mesh says more: asking a group for its name at each call costs."""
        self._meshes = MeshNames(self._known.clear)
        self._nodes = NodeLabels()
        self._waits = TimedWait()
        self._operators = Operators(self.account)
        self._library: torch.library.Library | None = None
        self._hook: Any = None

    def install(self) -> None:
        """Register the kernels. Operators whose arguments are not the known ones are left alone."""
        library = self._library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
        for name, handler in self._operators.handlers.items():
            self._register(library, name, handler)
        for name in COUNTED:
            self._register(library, name, _count(name))
        for name in unknown():
            log.warning("hpcbench: c10d.%s is not known: its calls travel exactly and are not counted", name)
        self._meshes.watch()
        self._nodes.watch()
        self._waits.watch()
        self._hook = register_optimizer_step_post_hook(self._stepped)

    def remove(self) -> None:
        """Take the kernels back, and end the threads."""
        if self._library is not None:
            self._library._destroy()  # type: ignore[no-untyped-call]
            self._library = None
            self._meshes.unwatch()
            self._nodes.unwatch()
            self._waits.unwatch()
            self._hook.remove()
        for group in self._groups.values():
            group.stop(_PATIENCE_S)

    def at_exit(self) -> None:
        """Write this rank's file, and end the threads."""
        try:
            self.account.write(Path(self._settings.out))
        except OSError as error:
            log.warning("hpcbench: what this rank sent is lost: %s", error)
        self.remove()

    def _stepped(self, *about: object) -> None:
        for group in self._groups.values():
            group.stepped()

    def _register(self, library: torch.library.Library, name: str, handler: Callable[..., Any]) -> None:
        operator = getattr(torch.ops.c10d, name).default
        odd = strange(name, operator._schema)
        if odd:
            log.warning("hpcbench: %s: its calls travel exactly and are not counted", odd)
            return
        where, known = ARGUMENTS[name].index("process_group"), self._known

        def kernel(keys: Any, *args: Any) -> Any:
            def plain(first: Any) -> Any:
                return operator.redispatch(keys & _BELOW, first, *args[1:])

            group = ProcessGroup.unbox(args[where])
            calls = known.get(group) or self._calls(group)
            done = None if calls is None else handler(calls, plain, *args)
            return operator.redispatch(keys & _BELOW, *args) if done is None else done

        library.impl(name, kernel, "BackendSelect", with_keyset=True)  # type: ignore[no-untyped-call]

    def _calls(self, group: dist.ProcessGroup) -> GroupCalls | None:
        """What is known of a group; None for one that torch.distributed does not list, whose ranks nobody knows."""
        name = group.group_name
        calls = self._groups.get(name)
        description = self._meshes.described(name, group.group_desc)
        if calls is not None and calls.id == group._id() and calls.description == description:  # type: ignore[attr-defined]
            self._known[group] = calls
            return calls
        if not dist.is_initialized() or group not in distributed_c10d._world.pg_group_ranks:
            return None
        if calls is not None:
            calls.stop(0.0)  # another group by that name, or a mesh has told what this one is
            self._known.clear()
        self.account.rank, self.account.world = dist.get_rank(), dist.get_world_size()
        calls = self._groups[name] = self._known[group] = GroupCalls(group, description, self._settings, self.account)
        return calls


def _count(name: str) -> Callable[..., Any]:
    """A handler that counts the calls of an operator."""

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
