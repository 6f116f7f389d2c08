"""Selection of the carrier for encoded calls, based on the group's backend for a device."""

import logging

import torch
import torch.distributed as dist

from hpcbench.contract.call_treatment import CallKind
from hpcbench.contract.traffic import Algorithm
from hpcbench.contract.treatment import Treatment
from hpcbench.programs.account import Account
from hpcbench.programs.exact import TORCHCOMMS
from hpcbench.programs.kernel_operators import codec_of, device_kernels, has_kernels
from hpcbench.programs.second_group import SecondGroup
from hpcbench.programs.stream_order import order_of
from hpcbench.programs.streamed_group import ALGORITHMS, StreamedGroup

log = logging.getLogger("hpcbench.torch")
NCCL = "nccl"
"""Backend name of NCCL and RCCL."""
MESSAGE, SIZE, ALGORITHM, AUTO, BETWEEN = (
    "point to point over nccl",
    "variable size over nccl",
    "algorithm over nccl",
    "auto over nccl",
    "between nodes over nccl",
)
"""Reasons why calls over NCCL are not encoded."""


def find_backend(group: dist.ProcessGroup, device: torch.device) -> str:
    """Return the name of a group's backend for a device, such as ``nccl`` or ``gloo``.

    The result is empty if the group has no backend for the device. All torchcomms backends, which a program selects
    with TORCH_DISTRIBUTED_USE_TORCHCOMMS=1, are reported as ``torchcomms``. A wrapper has the name of the backend that
    it wraps, but not the options of that backend.
    """
    try:
        backend = group._get_backend(device)
    except RuntimeError:
        return ""
    if type(backend).__module__.partition(".")[0] == "torchcomms":
        return TORCHCOMMS
    return str(backend.name()).lower()


def is_streamed(group: dist.ProcessGroup, device: torch.device, *, through_host: bool) -> bool:
    """Return whether encoded calls on a device use collectives of the whole group (streamed_group.py).

    Parameters
    ----------
    through_host
        Whether the user asked to send GPU tensors through the host and gloo (`cuda: true`).
    """
    return not through_host and find_backend(group, device) == NCCL


def explain_device(group: dist.ProcessGroup, device: torch.device) -> str:
    """Return why calls on a device without a carrier are not encoded."""
    return TORCHCOMMS if find_backend(group, device) == TORCHCOMMS else f"device {device.type}"


def find_refusal(call: CallKind, rule: Treatment) -> str:
    """Return why calls with this treatment are not encoded over NCCL, or an empty string if they are encoded."""
    if call is CallKind.MESSAGE:
        return MESSAGE
    if rule.between_nodes:
        return BETWEEN
    if rule.algorithm is Algorithm.AUTO:
        return AUTO
    if rule.algorithm not in ALGORITHMS:
        return ALGORITHM
    return "" if has_kernels(codec_of(rule.codec)) else SIZE


def make_streamed_group(group: dist.ProcessGroup, account: Account, device: torch.device) -> StreamedGroup:
    """Create the carrier that uses collectives of the whole group to execute its encoded calls on a device."""
    if device.type != "cpu":
        device_kernels(device.index or 0)  # raise errors before any message of this group
    if group.rank() == 0 and device.type != "cpu":
        log.warning(
            "hpcbench: encoded calls of group %r are sent over NCCL. This is experimental and has not been "
            "tested on a GPU: compare the losses with those of a run without a scheme",
            group.group_desc,
        )
    second, name = SecondGroup(group), f"group {group.group_desc}" if group.group_desc else "a group"
    return StreamedGroup(
        name, group.rank(), second.topology(), order_of(device), lambda: second.collectives(device), account
    )
