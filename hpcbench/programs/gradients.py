"""Predicates that distinguish gradients from other summed values, and complex values from pairs of real values.

Data-parallel groups sum gradients, but also parameters, moving averages, counts and metrics, which must stay exact.
Autograd is active while gradients are summed, except in frameworks that sum them after the backward pass. These
frameworks use known functions, which are on the caller's stack. All ranks of a call run the same code and therefore get
the same result. A stack search takes about 0.1 microseconds per frame, so it is skipped for calls below `min_bytes`.
"""

import sys
from collections.abc import Sequence

import torch

_FUNCTIONS: dict[str, tuple[str, ...]] = {
    # PyTorch: ranks without remaining data (join), and pipeline stages
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
    # Megatron-LM and its derivatives
    "start_grad_sync": ("megatron",),
    "finish_grad_sync": ("megatron",),
    "allreduce_gradients": ("megatron", "deepspeed"),
    "sync_gradients_across_dp": ("nanotron",),
    # pseudo-gradients of DiLoCo in OpenDiLoCo and prime
    "sync_pseudo_gradient": (),
}
"""Functions that sum gradients, and the packages that must define them. An empty tuple allows any package."""
_OF_REPLICAS: dict[str, tuple[str, ...]] = {
    **_FUNCTIONS,
    "_verify_param_shape_across_processes": ("torch",),  # DDP's first call
    "_sync_module_states": ("torch",),
    "foreach_all_gather": ("torch",),  # FSDP2
    "_all_gather_flat_param": ("torch",),  # FSDP1
}
"""Framework functions that are called only for groups of replicas, or for groups of the shards of one replica."""


def is_gradient() -> bool:
    """Return whether the current call sums gradients."""
    return torch._C._current_graph_task_id() >= 0 or _is_called_by(_FUNCTIONS)


def is_of_replicas() -> bool:
    """Return whether the current call comes from DDP, FSDP or a similar framework."""
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
    """Return whether a tensor is the real view of a complex tensor, which PyTorch uses to sum complex values.

    In inference mode, views do not store their base tensor. In this case, pairs of adjacent values count as complex.
    """
    for tensor in tensors:
        base = tensor._base
        if base is not None:
            if base.is_complex():
                return True
        elif tensor.is_inference() and tensor.dim() and tensor.size(-1) == 2 and tensor.stride(-1) == 1:
            return True
    return False
