"""Collective calls in a trace: operation, dtype, size, process group, and bytes on the wire."""

import re
from dataclasses import dataclass
from typing import Any

from hpcbench.diagnose.spans import Span

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
ALL_TO_ALL, MESSAGE, UNKNOWN = "all-to-all", "send/receive", "unknown operation"
_OPERATIONS = (
    (re.compile("all_?reduce"), ALL_REDUCE),
    (re.compile("reduce_?scatter"), REDUCE_SCATTER),
    (re.compile("all_?gather"), ALL_GATHER),
    (re.compile("all_?to_?all"), ALL_TO_ALL),
    (re.compile("broadcast"), "broadcast"),
    (re.compile("^(send|recv|.*sendrecv|batch_isend_irecv|coalesced)"), MESSAGE),
    (re.compile("barrier"), "barrier"),
    (re.compile("reduce"), "reduce"),
    (re.compile("gather"), "gather"),
    (re.compile("scatter"), "scatter"),
)
"""Patterns for lower-case names of kernels, annotations and Kineto collectives. The first match is used."""
COMPRESSIBLE = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, MESSAGE)
"""Operations whose messages compression systems can encode."""

_TYPES = {
    **dict.fromkeys(("float", "float32", "f32"), ("fp32", 4)),
    **dict.fromkeys(("bfloat16", "c10::bfloat16", "bf16"), ("bf16", 2)),
    **dict.fromkeys(("half", "float16", "c10::half", "f16"), ("fp16", 2)),
    **dict.fromkeys(("double", "float64", "f64"), ("fp64", 8)),
    **dict.fromkeys(("long", "int64", "long int", "i64", "u64"), ("int64", 8)),
    **dict.fromkeys(("int", "int32", "i32", "u32"), ("int32", 4)),
    **dict.fromkeys(("byte", "uint8", "unsigned char", "u8"), ("uint8", 1)),
    **dict.fromkeys(("char", "int8", "signed char", "i8"), ("int8", 1)),
    "bool": ("bool", 1),
}
FLOATS = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Sizes in bytes of the dtypes that a lossy codec encodes."""


@dataclass(frozen=True)
class TracedGroup:
    """A process group in a trace."""

    name: str = ""
    description: str = ""
    size: int | None = None
    ranks: tuple[int, ...] | None = None


@dataclass
class TracedCall:
    """A collective call of one rank."""

    operation: str
    dtype: str
    """Short name of the dtype, or an empty string if the dtype is unknown."""
    message_bytes: int | None
    """Bytes of the whole vector (input of a reduction, output of a gather), or None if unknown."""
    group: TracedGroup
    span: Span
    waits_until: float | None = None
    """Time at which the last rank began the call, or None if unknown."""

    @property
    def waiting(self) -> Span:
        """Part of the call in which the rank waited for other ranks."""
        return Span(self.span.begin, max(self.span.begin, min(self.waits_until or self.span.begin, self.span.end)))

    @property
    def transfer(self) -> Span:
        """Part of the call after the last rank began it."""
        return Span(self.waiting.end, self.span.end)

    @property
    def wire_bytes(self) -> float | None:
        """Bytes that a rank sends with an optimal algorithm, or None if the message size or group size is unknown."""
        n, size = self.message_bytes, self.group.size
        if n is None or not size:
            return None
        share = (size - 1) / size
        factors = {ALL_REDUCE: 2 * share, REDUCE_SCATTER: share, ALL_GATHER: share, ALL_TO_ALL: share}
        return n * factors.get(self.operation, 1.0)

    @property
    def compressible(self) -> bool:
        """Whether a lossy codec could encode the call."""
        return self.operation in COMPRESSIBLE and self.dtype in FLOATS


def name_operation(name: str) -> str:
    """Return the operation that the name of a kernel, an annotation or a Kineto collective refers to."""
    lower = name.lower()
    return next((operation for pattern, operation in _OPERATIONS if pattern.search(lower)), UNKNOWN)


def name_type(name: str) -> tuple[str, int | None]:
    """Return the short name of a dtype, and its size in bytes."""
    if name.lower().startswith("float8"):
        return "fp8", 1
    return _TYPES.get(name.lower(), (name.lower(), None))


def type_of_kernel(name: str) -> str:
    """Extract the short dtype name from a kernel name, such as ``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``.

    The result is empty for kernels of messages, which are named int8 for messages of any type.
    """
    if "sendrecv" in name.lower():
        return ""
    parts = re.split(r"[_(<,\s]+", name)
    return next((_TYPES[part.lower()][0] for part in parts if part.lower() in _TYPES), "")


def number(value: Any) -> int | None:
    """Return a number of elements or ranks, or None if the value is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def rank_list(value: Any) -> tuple[int, ...] | None:
    """Parse a list of ranks, or its string form, such as ``[0, 1]``. Return None if it is truncated or invalid."""
    if isinstance(value, str):
        items = value.strip("[] ").split(",")
        if not all(item.strip().isdigit() for item in items):
            return None
        return tuple(int(item) for item in items)
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return tuple(value)
    return None
