"""FSDP2 communication objects that apply codecs, based on PyTorch's official interface.

net = fully_shard(net)
net.set_custom_reduce_scatter(CompressedReduceScatter("int8:256"))
net.set_custom_all_gather(CompressedAllGather("fp8e4m3"))

Each object serves one `fully_shard` module, so create one for each such module. Calls that are not encoded (small
calls, other dtypes, other reductions) use PyTorch's implementation.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from hpcbench.comm.plan import Operation
from hpcbench.contract.call_treatment import CallKind
from hpcbench.programs.explicit_calls import ExplicitCalls

# fallback to the names that newer PyTorch versions deprecate
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_SUMS = {dist.ReduceOp.SUM: False, dist.ReduceOp.AVG: True}
"""Reductions that can be encoded, and whether each one computes an average."""


class _CachedMemory:
    """Buffers from PyTorch's caching allocator."""

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Allocate a buffer for FSDP2."""
        return torch.empty(*size, dtype=dtype, device=device)


class CompressedReduceScatter(_CachedMemory, ReduceScatter):
    """Reduce-scatter of gradients with a codec. Sums are computed in fp32.

    Parameters
    ----------
    codec
        Codec name as in a study: ``int8:256``, ``zfp:8``, ``bf16``.
    feedback
        Whether to use error feedback.
    min_bytes
        Minimum size in bytes of the vectors to encode.
    """

    def __init__(self, codec: str, *, feedback: bool = False, min_bytes: int = 65536) -> None:
        self._explicit = ExplicitCalls(codec, feedback=feedback, min_bytes=min_bytes)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Work | None:
        """Sum the gradients of all ranks, and write this rank's piece to `output_tensor`."""
        average = next((averages for reduction, averages in _SUMS.items() if op == reduction), None)
        if average is not None:
            calls = self._explicit.of(group)
            row, channel, decision, _ = calls.choose(CallKind.REDUCE_SCATTER, [input_tensor])
            if channel is not None and decision is not None:
                operation, vectors = Operation.REDUCE_SCATTER, ([output_tensor], [input_tensor])
                begin = decision.carrier.reduce(operation, *vectors, channel, row, average=average)
                return _end(begin(decision.make()), async_op)
        plain: Work | None = _reduce_scatter(output_tensor, input_tensor, op, group, async_op)
        return plain


class CompressedAllGather(_CachedMemory, AllGather):
    """All-gather of parameters with a codec. Checkpoints do not use this object.

    Parameters
    ----------
    codec
        Codec name as in a study.
    min_bytes
        Minimum size in bytes of the vectors to encode.
    """

    def __init__(self, codec: str, *, min_bytes: int = 65536) -> None:
        self._explicit = ExplicitCalls(codec, min_bytes=min_bytes)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Work | None:
        """Gather the pieces of all ranks into `output_tensor`. `input_tensor` may be a view of `output_tensor`."""
        calls = self._explicit.of(group)
        row, channel, decision, _ = calls.choose(CallKind.ALL_GATHER, [output_tensor])
        if channel is not None and decision is not None:
            begin = decision.carrier.all_gather([output_tensor], [input_tensor], channel, row)
            return _end(begin(decision.make()), async_op)
        plain: Work | None = _all_gather(output_tensor, input_tensor, group, async_op)
        return plain


def _end(work: Work, async_op: bool) -> Work | None:
    """Return the handle of an asynchronous call. For other calls, make the caller's stream wait for the work."""
    if async_op:
        return work
    work.wait()
    return None
