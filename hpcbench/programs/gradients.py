"""Tests that distinguish gradients from other sums, and complex numbers from pairs of real ones.

A group of replicas sums gradients, but also parameters, moving averages, counts and metrics, which must stay exact.
Autograd is at work while gradients are summed, except in frameworks that sum them after the backward pass: those have
functions for it, which are on the caller's stack. All ranks of a call run the same code, so they get the same result.
A search of the stack costs about a tenth of a microsecond for each frame, so calls below `min_bytes` skip it.
"""

import sys
from collections.abc import Sequence

import torch

_FUNCTIONS: dict[str, tuple[str, ...]] = {
    # PyTorch: ranks that have no more data (join), and stages of a pipeline
    "_match_all_reduce_for_bwd_pass": ("torch",),
    "foreach_reduce": ("torch",),
    "_reduce_grad": ("torch",),
    # DeepSpeed
    "allreduce_bucket": ("deepspeed",),
    "gradient_reduction_w_predivide": ("deepspeed",),
    "average_tensor": ("deepspeed",),
    "__avg_scatter_grads": ("deepspeed",),
    "__avg_scatter_contiguous_grads": ("deepspeed",),
    "_reduce_scatter_gradient": ("deepspeed",),
    # Megatron-LM and its relatives
    "start_grad_sync": ("megatron",),
    "finish_grad_sync": ("megatron",),
    "allreduce_gradients": ("megatron", "deepspeed"),
    "sync_gradients_across_dp": ("nanotron",),
    # pseudo-gradients of DiLoCo: OpenDiLoCo and prime
    "sync_pseudo_gradient": (),
}
"""Functions that sum gradients, and the packages that they must belong to. An empty tuple allows any package."""
_OF_REPLICAS: dict[str, tuple[str, ...]] = {
    **_FUNCTIONS,
    "_verify_param_shape_across_processes": ("torch",),  # DDP's first call
    "_sync_module_states": ("torch",),
    "foreach_all_gather": ("torch",),  # FSDP2
    "_all_gather_flat_param": ("torch",),  # FSDP1
}
"""Functions of frameworks whose groups are replicas, or shards of one."""


def is_gradient() -> bool:
    """Return whether the present call sums gradients."""
    return torch._C._current_graph_task_id() >= 0 or _is_called_by(_FUNCTIONS)


def is_of_replicas() -> bool:
    """Return whether DDP, FSDP or a framework like them makes the present call."""
    return _is_called_by(_OF_REPLICAS)


def _is_called_by(functions: dict[str, tuple[str, ...]]) -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        packages = functions.get(frame.f_code.co_name)
        if packages is not None:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if not packages or package in packages:
                return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def has_complex(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor is the real view of a complex one, which is how PyTorch sums complex numbers.

    In inference mode no view remembers its base: there, pairs of adjacent numbers count as complex.
    """
    for tensor in tensors:
        base = tensor._base
        if base is not None:
            if base.is_complex():
                return True
        elif tensor.is_inference() and tensor.dim() and tensor.size(-1) == 2 and tensor.stride(-1) == 1:
            return True
    return False
