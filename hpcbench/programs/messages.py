"""Encoded point-to-point messages. Each tensor is sent as one message of the program's group.

A second group would have to be created by all ranks, but a pipeline stage communicates only with its neighbors.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch._C._distributed_c10d import Work

from hpcbench.codecs.base import Codec
from hpcbench.codecs.types import Array
from hpcbench.comm.memory import Tally
from hpcbench.programs.account import Account, CallCounts
from hpcbench.programs.gloo_carrier import behind_length, room_for, with_length
from hpcbench.programs.tensors import array
from hpcbench.programs.worker import start_in_thread


def encode_message(tensor: torch.Tensor, codec: Codec, seed: int, account: Account, row: CallCounts) -> torch.Tensor:
    """Encode a tensor into a message."""
    values, tally = array(tensor.contiguous()), Tally()
    begin = time.perf_counter()
    wire = np.empty(codec.wire_bytes(values.size, values.dtype), dtype=np.uint8)
    used = codec.encode(values, wire, seed=seed)
    tally.encoded(begin)
    tally.message_bytes, tally.wire_bytes = values.nbytes, used
    tally.coded_bytes = values.nbytes if codec.name != "none" else 0
    account.sent(row, tally)
    return torch.from_numpy(wire if codec.fixed_size else with_length(wire[:used]))


def receive_message(
    tensor: torch.Tensor, codec: Codec, receive: Callable[[torch.Tensor], Work], account: Account, row: CallCounts
) -> Work:
    """Receive a message and decode it into a tensor."""
    target = tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)
    values = array(target)
    bound = codec.wire_bytes(values.size, values.dtype)
    inbox: Array = np.empty(bound, dtype=np.uint8) if codec.fixed_size else room_for(bound)
    work = receive(torch.from_numpy(inbox))

    def decode() -> None:
        work.wait()
        tally, begin = Tally(), time.perf_counter()
        codec.decode(inbox if codec.fixed_size else behind_length(inbox), values)
        tally.decoded(begin)
        account.sent(row, tally)
        if target is not tensor:
            tensor.copy_(target)

    return start_in_thread(decode, [tensor])
