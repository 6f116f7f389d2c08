"""Calls of one process group: how each kind of call is executed, and its counts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from hpcbench.comm.channel import Channel, resolve_channel
from hpcbench.comm.plan import Operation
from hpcbench.contract.call_treatment import CallKind, resolve_call
from hpcbench.contract.interpose import Interposition
from hpcbench.contract.traffic import Algorithm, Traffic
from hpcbench.contract.treatment import Treatment
from hpcbench.programs.account import Account, CallCounts, Key
from hpcbench.programs.call_carrier import Begin
from hpcbench.programs.decision import Decision
from hpcbench.programs.dimensions import dimension_of, dimension_of_message, is_undescribed
from hpcbench.programs.encoded import EncodedGroup
from hpcbench.programs.gradients import has_complex, is_gradient, is_of_replicas
from hpcbench.programs.group_carriers import GroupCarriers
from hpcbench.programs.tensors import DTYPES

_OPERATIONS = {
    CallKind.ALL_REDUCE: Operation.ALL_REDUCE,
    CallKind.REDUCE_SCATTER: Operation.REDUCE_SCATTER,
    CallKind.ALL_GATHER: Operation.ALL_GATHER,
    CallKind.FUNCTIONAL_GATHER: Operation.ALL_GATHER,
}
SUM, AVERAGE = 0, 1
"""Numeric IDs that c10d assigns to the two reductions that can be encoded."""
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")


class Chosen(NamedTuple):
    """How identical calls are executed."""

    row: CallCounts
    """Counts of the calls, unless the ranks decide to leave them to PyTorch."""
    channel: Channel | None
    """Channel of encoded calls, or None if PyTorch executes the calls in the program's group."""
    decision: Decision | None = None
    """Plans of a sum or gather."""
    min_bytes: int = 0
    """Minimum size in bytes of the parts of an exchange that are encoded."""


class GroupCalls:
    """Calls of one process group.

    Parameters
    ----------
    group
        The program's process group.
    description
        Description of the group, set by the group itself or by a mesh.
    settings
        The user's scheme and groups file.
    account
        Counts of the calls.
    """

    def __init__(self, group: dist.ProcessGroup, description: str, settings: Interposition, account: Account) -> None:
        self.id = group._id()  # type: ignore[attr-defined]
        self.description = description
        self._group, self._settings, self._account = group, settings, account
        self._ranks = dist.get_process_group_ranks(group)
        self.size = len(self._ranks)
        self.dimension = dimension_of(description, self._ranks, dist.get_world_size(), settings.groups)
        undescribed = is_undescribed(description)
        self._may_be_replicas = self.dimension is None and undescribed and not settings.groups.layout
        self._by_layout = undescribed and bool(settings.groups.layout)
        self.carriers = GroupCarriers(group, account, through_host=settings.groups.cuda)
        self._chosen: dict[tuple[object, ...], Chosen] = {}
        self._small: dict[tuple[object, ...], CallCounts] = {}
        self._channels: dict[tuple[object, ...], Channel] = {}
        self._messages = 0
        self._lossy_sums = "sums-outside-backward" in settings.groups.lossy
        # inspecting a call's values takes time, and smaller calls are not encoded anyway
        self._looks_from = math.inf if settings.scheme.algorithm == "native" else settings.groups.min_bytes

    def next_seed(self) -> int:
        """Return the seed of this rank's next point-to-point message."""
        self._messages += 1
        return self._messages * self.size + self._group.rank()

    def exact(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Count a call of an operation that is never encoded."""
        if self._may_be_replicas:
            self._learn_dimension()
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        n = sum(t.numel() for t in tensors)
        row = self._row(name, self.dimension, dtype, "", "operation")
        self._account.call(row, n, sum(t.numel() * t.element_size() for t in tensors))

    def count_small(self, call: str, tensor: torch.Tensor) -> bool:
        """Count a call if it is too small to be encoded. Return whether the call was counted.

        Neither the stack nor the values are inspected.

        Parameters
        ----------
        call
            Name of the call.
        tensor
            Complete vector in host memory.
        """
        n = tensor.numel()
        nbytes = n * tensor.element_size()
        if nbytes >= self._settings.groups.min_bytes:
            return False
        key = (call, self.dimension, tensor.dtype)
        row = self._small.get(key)
        if row is None:
            if isinstance(call, CallKind):
                row = self._choose(call, self.dimension, [tensor], nbytes, ragged=False, content="").row
            else:
                row = self._row(call, self.dimension, str(tensor.dtype).removeprefix("torch."), "", "operation")
            self._small[key] = row
        self._account.call(row, n, nbytes)
        return True

    def choose(
        self,
        call: CallKind,
        tensors: Sequence[torch.Tensor],
        *,
        op: Any = None,
        peer: int | None = None,
        ragged: bool = False,
    ) -> Chosen:
        """Choose how to execute a call. Also count the call, unless its plans are still undecided.

        Parameters
        ----------
        tensors
            Complete vectors: sources of reductions and targets of gathers.
        op
            The reduction, if any.
        peer
            Group rank of the other end of a message.
        ragged
            Whether sizes may differ between ranks, which prevents a joint decision.
        """
        if self._may_be_replicas:
            self._learn_dimension()
        dimension = self.dimension
        if call is CallKind.MESSAGE and self._by_layout:
            dimension = self._dimension_of_message(peer)
        first = tensors[0]
        if len(tensors) == 1:
            n = first.numel()
            # reading the device name takes longer than everything else here
            device = "cpu" if first.is_cpu else first.device.type
            nbytes = n * first.element_size()
            key: tuple[object, ...] = (call, dimension, first.dtype, n, device)
        else:
            n = sum(t.numel() for t in tensors)
            nbytes = sum(t.numel() * t.element_size() for t in tensors)
            key = (call, dimension, *((t.dtype, t.numel(), t.device.type) for t in tensors))
        if ragged:
            key = (call, dimension, first.dtype, first.device.type)
        content = ""
        if nbytes >= self._looks_from or ragged:
            content = self._exact_content(call, tensors, op)
            key = (*key, content)
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = self._choose(call, dimension, tensors, nbytes, ragged, content)
        if chosen.decision is None:
            self._account.call(chosen.row, n, nbytes)
        return chosen

    def carry_out(
        self,
        decision: Decision,
        result: Any,
        prepare: Callable[[], Begin],
        plain: Callable[[dist.ProcessGroup], Work],
    ) -> Work:
        """Start the encoded call, or PyTorch's own call if the ranks decide to use PyTorch. Return its handle.

        A group's calls start in the same order on all ranks, and the calls that are left to PyTorch use a separate
        group. Therefore, a rank that learns of a decision later than another rank still starts the same calls.

        Parameters
        ----------
        decision
            The calls' plans.
        result
            Result of the returned handle.
        prepare
            Function that prepares the encoded call in the caller's thread.
        plain
            Function that starts PyTorch's own call in a group.
        """
        carrier = decision.carrier
        begin = prepare() if decision.plans is None or decision.plans else None

        def call() -> Work:
            plans = decision.make()
            self._account.call(decision.row if plans else decision.plain_row, decision.n, decision.nbytes)
            return begin(plans) if begin is not None and plans else plain(carrier.plain_group())

        return carrier.begin(call, result, decided=decision.plans is not None)

    def stepped(self) -> None:
        """Begin a new step, after the program's optimizer has made a step."""
        self.carriers.stepped()

    def stop(self, patience_s: float) -> None:
        """Stop the threads of encoded operations."""
        self.carriers.stop(patience_s)

    def _learn_dimension(self) -> None:
        """Treat a group without a description as data-parallel once a data-parallel framework has used it."""
        if is_of_replicas():
            self._may_be_replicas, self.dimension = False, "DP"

    def _dimension_of_message(self, peer: int | None) -> str | None:
        if peer is None:
            if self._settings.dry or self._settings.scheme.algorithm == "native":
                return None
            raise RuntimeError(
                f"hpcbench: rank {self._ranks[self._group.rank()]} receives from any source in group "
                f"{self.description!r}, but `layout` in the groups file requires that both ranks of a message are "
                "known: receive from a specific rank, or leave `layout` out"
            )
        ranks = self._ranks[self._group.rank()], self._ranks[peer]
        return dimension_of_message(ranks, dist.get_world_size(), self._settings.groups.layout)

    def _exact_content(self, call: CallKind, tensors: Sequence[torch.Tensor], op: Any) -> str:
        """Return the kind of a call's content if such content must never be encoded, otherwise an empty string."""
        if op is not None:
            reduction = op.op()
            if reduction not in (SUM, AVERAGE):
                return f"reduction {_REDUCTIONS[reduction] if reduction < len(_REDUCTIONS) else reduction}"
        if call is not CallKind.MESSAGE and has_complex(tensors):  # messages keep their complex dtype
            return "complex"
        if op is not None and self.dimension == "DP" and not self._lossy_sums and not is_gradient():
            return "outside backward"
        return ""

    def _choose(
        self,
        call: CallKind,
        dimension: str | None,
        tensors: Sequence[torch.Tensor],
        nbytes: int,
        ragged: bool,
        content: str,
    ) -> Chosen:
        dtype = tensors[0].dtype
        name = str(dtype).removeprefix("torch.")
        scheme, groups = self._settings.scheme, self._settings.groups
        traffic, rule, why = resolve_call(scheme, groups, dimension, call)
        why = self._hindrance(tensors, nbytes, ragged, rule, call) or why
        if rule is not None and rule.between_nodes and call not in _OPERATIONS:
            why = why or "between nodes"  # a point-to-point message has no plan, and only plans distinguish nodes
        why = why or content
        if why or traffic is None or rule is None:
            return Chosen(self._row(call.value, dimension, name, "", why), None)
        if self._settings.dry:
            return Chosen(self._row(call.value, dimension, name, "", f"dry run: {rule.codec}"), None)
        channel = self._channel(traffic, dtype)
        row = self._row(call.value, dimension, name, rule.codec, "")
        if call not in _OPERATIONS:
            return Chosen(row, channel, None, self._least(rule))
        plain_row = self._row(call.value, dimension, name, "", "plan")
        operation, kind, sizes = _OPERATIONS[call], DTYPES[dtype], [t.numel() for t in tensors]
        carrier = self.carriers.of(tensors[0])
        decision = Decision(row, plain_row, sum(sizes), nbytes, carrier)
        if channel.algorithm is Algorithm.AUTO and tensors[0].is_cpu and isinstance(carrier, EncodedGroup):
            decision.ask = partial(carrier.plans.decide, operation, sizes, kind, channel)
            return Chosen(row, channel, decision)
        plans = [carrier.lay(operation, n, kind, channel) for n in sizes]
        if None in plans:
            return Chosen(plain_row, None)
        decision.plans = [plan for plan in plans if plan is not None]
        return Chosen(row, channel, decision)

    def _hindrance(
        self,
        tensors: Sequence[torch.Tensor],
        nbytes: int,
        ragged: bool,
        rule: Treatment | None,
        call: CallKind,
    ) -> str:
        """Return the property of the call that prevents encoding, or an empty string."""
        if self.size == 1:
            return "one rank"
        if any(t.layout is not torch.strided for t in tensors):
            return "layout"
        if any(t.dtype not in DTYPES for t in tensors) or len({t.dtype for t in tensors}) > 1:
            return "type"
        why = self.carriers.find_hindrance(tensors[0].device, call, rule, planned=call in _OPERATIONS)
        return why or ("small" if not ragged and nbytes < self._least(rule) else "")

    def _least(self, rule: Treatment | None) -> int:
        return max(self._settings.groups.min_bytes, rule.min_bytes if rule else 0)

    def _channel(self, traffic: Traffic, dtype: torch.dtype) -> Channel:
        key = (traffic, dtype)
        if key not in self._channels:
            sent = None if dtype is torch.float32 else DTYPES[dtype]
            channel = resolve_channel(self._settings.scheme, traffic, sent)
            self._channels[key] = replace(channel, min_bytes=0)  # `_least` applies the limit to all tensors of a call
        return self._channels[key]

    def _row(self, call: str, dimension: str | None, dtype: str, codec: str, why: str) -> CallCounts:
        return self._account.row(Key(self.description, self.size, dimension or "unknown", call, dtype, codec, why))
