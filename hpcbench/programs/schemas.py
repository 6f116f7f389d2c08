"""Expected arguments of c10d operators.

New torch versions may change arguments. Calls of changed operators are not intercepted, to avoid sending wrong data.
"""

from typing import Any

import torch

_REDUCTION = ("process_group", "reduce_op")
_END = ("async_op", "timeout")

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "allreduce_": ("tensors", *_REDUCTION, "sparse_indices", *_END),
    "allreduce_coalesced_": ("tensors", *_REDUCTION, *_END),
    "_allgather_base_": ("output_tensor", "input_tensor", "process_group", *_END),
    "allgather_into_tensor_coalesced_": ("outputs", "inputs", "process_group", "async_op"),
    "allgather_": ("output_tensors", "input_tensors", "process_group", *_END),
    "allgather_coalesced_": ("output_lists", "input_list", "process_group", "async_op"),
    "_reduce_scatter_base_": ("output_tensor", "input_tensor", *_REDUCTION, *_END),
    "reduce_scatter_tensor_coalesced_": ("outputs", "inputs", *_REDUCTION, *_END),
    "reduce_scatter_": ("output_tensors", "input_tensors", *_REDUCTION, *_END),
    "alltoall_base_": ("output", "input", "process_group", "output_split_sizes", "input_split_sizes", *_END),
    "alltoall_": ("output_tensors", "input_tensors", "process_group", *_END),
    "send": ("tensors", "process_group", "dst", "tag"),
    "recv_": ("tensors", "process_group", "src", "tag"),
    "recv_any_source_": ("tensors", "process_group", "tag"),
    "broadcast_": ("tensors", "process_group", "root_rank", "root_tensor", *_END),
    "reduce_": ("tensors", *_REDUCTION, "root_rank", "root_tensor", *_END),
    "gather_": ("output_tensors", "input_tensors", "process_group", "root_rank", *_END),
    "scatter_": ("output_tensors", "input_tensors", "process_group", "root_rank", *_END),
}
NEWER: dict[str, tuple[str, ...]] = {
    "gather_into_tensor_": ("output_tensor", "input_tensor", "process_group", "root_rank", *_END),  # PyTorch 2.14
}
"""Operators that PyTorch 2.13 does not have."""
ARGUMENTS |= {name: arguments for name, arguments in NEWER.items() if hasattr(torch.ops.c10d, name)}
COUNTED = (
    *("allgather_coalesced_", "broadcast_", "reduce_", "gather_", "scatter_"),
    *(name for name in NEWER if name in ARGUMENTS),
)
"""Operators that are counted but never encoded."""


GIVE_VALUES = frozenset(
    (
        *("allreduce_", "_allgather_base_", "allgather_", "_reduce_scatter_base_", "reduce_scatter_", "alltoall_"),
        *("broadcast_", "scatter_", "gather_into_tensor_"),
    )
)
"""Operators that return tensors in addition to the work handle. All other operators return only the handle."""
SILENT = frozenset(("barrier", "monitored_barrier_", "check_for_nan"))
"""Operators that send no values between ranks."""


def strange(name: str, schema: Any) -> str | None:
    """Return how an operator differs from the expected schema, or None if it matches."""
    names = tuple(argument.name for argument in schema.arguments)
    if names != ARGUMENTS[name]:
        return f"c10d.{name} has arguments {', '.join(names)}, but {', '.join(ARGUMENTS[name])} were expected"
    expected = 1 + (name in GIVE_VALUES)
    if len(schema.returns) != expected:
        return f"c10d.{name} has {len(schema.returns)} results, but {expected} were expected"
    return None


def unknown() -> list[str]:
    """Return the operators of the installed torch that are not in these tables."""
    names = (name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::"))
    return sorted({name.removeprefix("c10d::") for name in names} - set(ARGUMENTS) - SILENT)
