"""DistributedDataParallel communication hook that applies a codec, based on PyTorch's official interface.

net.register_comm_hook(None, compressed("int8:256"))
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from hpcbench.comm.plan import Operation
from hpcbench.contract.call_treatment import CallKind
from hpcbench.programs.explicit_calls import ExplicitCalls

Hook = Callable[[Any, GradBucket], "torch.futures.Future[torch.Tensor]"]


def compressed(codec: str, *, feedback: bool = False, min_bytes: int = 65536) -> Hook:
    """Return a hook that averages encoded gradients.

    Parameters
    ----------
    codec
        Codec name as in a study: ``int8:256``, ``zfp:8``, ``bf16``, ``xpk``.
    feedback
        Whether to use error feedback.
    min_bytes
        Minimum size in bytes of the buckets to encode.

    Notes
    -----
    The hook's first argument is the process group. None selects the default group. GPU buckets are sent over the
    group's NCCL backend, which is experimental.
    """
    explicit = ExplicitCalls(codec, feedback=feedback, min_bytes=min_bytes)

    # DDP checks the return annotation, which must not be a string
    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        group: Any = state if state is not None else dist.group.WORLD
        calls = explicit.of(group)
        gradients = bucket.buffer()
        row, channel, decision, _ = calls.choose(CallKind.ALL_REDUCE, [gradients])
        if channel is None or decision is None:
            share = 1 / group.size()
            plain: torch.futures.Future[Any] = dist.all_reduce(gradients, group=group, async_op=True).get_future()
            return plain.then(lambda done: done.value()[0].mul_(share))
        begin = decision.carrier.reduce(Operation.ALL_REDUCE, [gradients], [gradients], channel, row, average=True)
        coded: torch.futures.Future[Any] = begin(decision.make()).get_future()
        return coded.then(lambda done: done.value()[0])

    return hook
