"""Fast path for small calls from Python, which bypass PyTorch's dispatcher.

With a Python kernel, small calls would take 1.5 times as long, although calls below `min_bytes` are never encoded.
Therefore, the methods of process groups count such calls and invoke the backend directly, as the dispatcher would. All
other calls, including calls from C++, go through the kernels.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import ProcessGroup

from hpcbench.contract.call_treatment import CallKind
from hpcbench.programs.groups import GroupCalls

_OPTIONS = (c10d.AllreduceOptions, c10d.AllgatherOptions, c10d.ReduceScatterOptions, c10d.BroadcastOptions)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CPU = torch.device("cpu")
Method = Callable[..., Any]


class SmallCalls:
    """Process-group methods that count small calls and pass them to the backend.

    Parameters
    ----------
    groups
        Calls of all groups used so far.
    """

    def __init__(self, groups: Mapping[ProcessGroup, GroupCalls]) -> None:
        self._groups = groups
        self._real: dict[str, Method] = {}
        self._backends: dict[GroupCalls, Any] = {}

    def watch(self) -> None:
        """Replace PyTorch's methods."""
        self._replace("allreduce", lambda real: self._in_place(real, CallKind.ALL_REDUCE, "allreduce"))
        self._replace("broadcast", lambda real: self._in_place(real, "broadcast", "broadcast"))
        self._replace("all_gather_single", lambda real: self._apart(real, CallKind.ALL_GATHER, "_allgather_base", 0))
        self._replace(
            "reduce_scatter_single", lambda real: self._apart(real, CallKind.REDUCE_SCATTER, "_reduce_scatter_base", 1)
        )

    def unwatch(self) -> None:
        """Restore PyTorch's methods."""
        for name, real in self._real.items():
            setattr(ProcessGroup, name, real)
        self._backends.clear()

    def _replace(self, name: str, replacement: Callable[[Method], Method]) -> None:
        real = vars(ProcessGroup).get(name)  # a class attribute would not be bound when it is restored
        if real is not None:
            self._real[name] = real
            setattr(ProcessGroup, name, replacement(real))

    def _in_place(self, real: Method, call: str, name: str) -> Method:
        """Return a method for a call on a list of tensors."""
        groups, backend_of = self._groups, self._backend

        def method(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            calls = groups.get(group)
            if calls is not None and len(args) == 2 and type(args[1]) in _OPTIONS and len(args[0]) == 1:
                (tensor,) = args[0]
                if _is_plain(tensor) and not _is_observed() and calls.count_small(call, tensor):
                    return getattr(backend_of(calls, group), name)(*args)
            return real(group, *args, **kwargs)

        return method

    def _apart(self, real: Method, call: str, name: str, vector: int) -> Method:
        """Return a method for a call with a target and a source.

        `vector` is the index of the argument that contains the complete vector.
        """
        groups, backend_of = self._groups, self._backend

        def method(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            calls = groups.get(group)
            if calls is not None and len(args) == 3 and type(args[2]) in _OPTIONS:
                plain = _is_plain(args[0]) and _is_plain(args[1])
                if plain and not _is_observed() and calls.count_small(call, args[vector]):
                    return getattr(backend_of(calls, group), name)(*args)
            return real(group, *args, **kwargs)

        return method

    def _backend(self, calls: GroupCalls, group: ProcessGroup) -> Any:
        backend = self._backends.get(calls)
        if backend is None:
            backend = self._backends[calls] = group._get_backend(_CPU)
        return backend


_count_modes = torch._C._len_torch_dispatch_stack
_find_transformation = torch._C._functorch.peek_interpreter_stack
_is_profiling = torch._C._autograd._profiler_enabled


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor needs no special handling by the dispatcher."""
    return type(tensor) in _TENSORS and tensor.is_cpu and tensor.layout is torch.strided


def _is_observed() -> bool:
    """Return whether a mode, transform or profiler observes dispatcher calls."""
    return _count_modes() > 0 or _find_transformation() is not None or _is_profiling()
