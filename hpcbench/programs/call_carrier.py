"""Interface for encoded operations of a group, over gloo from host memory or over NCCL from GPU memory."""

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
"""Function that starts a prepared call in any thread, given its plans.

On all ranks, calls start in program order.
"""


class CallCarrier(ABC):
    """Encoded operations of one group. All ranks of the group must make the same calls.

    Operations are prepared in the caller's thread, because only this thread can see the backward pass and the device's
    current stream.
    """

    @abstractmethod
    def lay(self, operation: Operation, n: int, dtype: np.dtype[Any], channel: Channel) -> Plan | None:
        """Return the plan of a call without communicating, or None to use the library's own collective."""

    @abstractmethod
    def begin(self, call: Callable[[], Work], result: Any, *, decided: bool) -> Work:
        """Start a call in program order and return its handle.

        Parameters
        ----------
        call
            Function that starts the call.
        result
            Result of the returned handle if the call must be queued.
        decided
            Whether the plans are known, so that the call need not wait for other ranks.
        """

    @abstractmethod
    def plain_group(self) -> dist.ProcessGroup:
        """Return the group for calls that all ranks have decided to leave to PyTorch."""

    @abstractmethod
    def all_gather(
        self, outs: Sequence[torch.Tensor], srcs: Sequence[torch.Tensor], channel: Channel, row: CallCounts
    ) -> Begin:
        """Prepare to gather each source from all ranks into its target."""

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

        If source and target are the same tensor, this tensor receives the full sum. Otherwise, the target receives this
        rank's piece.
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
        """Start to send part i of `src` to rank i.

        `counts` contains the numbers of elements sent to each rank and received from each rank.
        """

    @abstractmethod
    def stepped(self) -> None:
        """Begin a new step, after the program's optimizer has made a step."""

    @abstractmethod
    def stop(self, patience_s: float) -> None:
        """Stop threads, and release tensors of completed calls."""
