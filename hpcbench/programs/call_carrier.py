"""The interface of the encoded operations of one group: over gloo from the host, or over NCCL from a GPU."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from hpcbench.comm.channel import Channel
from hpcbench.comm.plan import Operation, Plan
from hpcbench.programs.account import CallCounts

Begin = Callable[[Sequence[Plan]], Work]
"""Function that starts a prepared call, given its plans. It may run in any thread.

Calls begin in the order of the program on all ranks.
"""


class CallCarrier(ABC):
    """The encoded operations of one group. All ranks of the group make them, at the same call.

    Operations are prepared in the caller's thread, because the backward pass and the device's
    stream are visible only there.
    """

    @abstractmethod
    def lay(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """Return the plan of a call without asking other ranks; None for the library's own collective."""

    @abstractmethod
    def begin(self, call: Callable[[], Work], result: Any, *, decided: bool) -> Work:
        """Begin a call in the order of the program, and return its handle.

        Parameters
        ----------
        call
            Function that begins the call.
        result
            Result of the handle of a call that has to wait.
        decided
            Whether its plans are known, so that it waits for no other rank.
        """

    @abstractmethod
    def plain_group(self) -> dist.ProcessGroup:
        """Return the group that carries calls which all ranks have decided to leave to PyTorch."""

    @abstractmethod
    def all_gather(
        self, outs: Sequence[torch.Tensor], srcs: Sequence[torch.Tensor], channel: Channel, row: CallCounts
    ) -> Begin:
        """Prepare to join each source of all ranks in its target."""

    @abstractmethod
    def reduce(
        self,
        operation: Operation,
        outs: Sequence[torch.Tensor],
        srcs: Sequence[torch.Tensor],
        channel: Channel,
        row: CallCounts,
        *,
        average: bool,
    ) -> Begin:
        """Prepare to sum each source over the ranks.

        If source and target are the same tensor, it receives the whole sum; otherwise the target receives this rank's
        piece.
        """

    @abstractmethod
    def all_to_all(
        self,
        out: torch.Tensor,
        src: torch.Tensor,
        counts: tuple[Sequence[int], Sequence[int]],
        channel: Channel,
        row: CallCounts,
        *,
        min_bytes: int,
    ) -> Work:
        """Begin to send part i of the source to rank i. `counts` are elements to each rank and from each rank."""

    @abstractmethod
    def stepped(self) -> None:
        """Start a new step: the program's optimizer has taken one."""

    @abstractmethod
    def stop(self, patience_s: float) -> None:
        """End the threads, and release what finished calls have kept."""
