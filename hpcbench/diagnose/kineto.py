"""Steps, computation and collective calls of one rank, from the events of its Kineto trace.

On a GPU, all kernels except collectives count as computation. On a CPU, library operators such as ``aten::mm`` count,
except during collective calls, which gloo annotates in its own threads. Autograd nodes do not count, because a node may
wait for a call between two operators (FSDP's ``RegisterPostBackwardFunctionBackward``).
"""

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpcbench.diagnose.calls import (
    ALL_GATHER,
    TracedCall,
    TracedGroup,
    name_operation,
    name_type,
    number,
    rank_list,
    type_of_kernel,
)
from hpcbench.diagnose.spans import Span, merge, subtract
from hpcbench.diagnose.trace_file import Progress, TraceFile
from hpcbench.errors import UserError

_COLLECTIVE_KERNEL = re.compile(r"^(nccl|rccl|msccl)", re.IGNORECASE)
_COLLECTIVE_ANNOTATION = re.compile(r"^(gloo|mpi|ucc):")
_STEP = re.compile(r"^ProfilerStep#([0-9]+)$")
_OPTIMIZER = "Optimizer.step#"


@dataclass
class RankTrace:
    """Traced steps of one rank. Times are in microseconds, relative to the base time of the trace."""

    path: Path
    rank: int | None
    world: int | None
    base_us: float
    steps: dict[int, Span]
    """Spans of steps, keyed by step number.

    The dictionary is empty if the trace contains neither steps nor optimizer calls.
    """
    is_gpu: bool
    computation: list[Span]
    """Ordered, disjoint spans of computation."""
    calls: list[TracedCall]
    """Calls in the order of their start times."""

    @property
    def window(self) -> Span:
        """Span from the start of the first step to the end of the last step."""
        if self.steps:
            return Span(min(step.begin for step in self.steps.values()), max(step.end for step in self.steps.values()))
        spans = [*self.computation, *(call.span for call in self.calls)]
        return Span(min(span.begin for span in spans), max(span.end for span in spans))


@dataclass
class _Collected:
    """Data collected while the events are read."""

    is_gpu: bool = False
    kernels: list[Span] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)
    operators: dict[Any, list[Span]] = field(default_factory=dict)
    """Operator spans keyed by thread. Nested spans are merged."""
    collective_operators: dict[Any, list[Span]] = field(default_factory=dict)
    steps: dict[int, Span] = field(default_factory=dict)
    gpu_steps: dict[int, Span] = field(default_factory=dict)
    optimizer: dict[str, list[Span]] = field(default_factory=dict)


def read_rank(path: Path, progress: Progress = lambda done, size: None) -> RankTrace:
    """Read the trace of a rank.

    Raises
    ------
    UserError
        The file cannot be read, is not a trace, or contains no work.
    """
    file = TraceFile(path, progress)
    collected = _Collected()
    groups: dict[str, TracedGroup] = {}
    for event in file.read_events():
        groups = groups or _read_groups(file.distributed)
        _collect(event, collected, groups)
    collected.calls.sort(key=lambda call: call.span.begin)
    if collected.is_gpu:
        computation = merge(collected.kernels)
    else:
        computation = merge(
            span
            for thread, spans in collected.operators.items()
            for span in subtract(merge(spans), merge(collected.collective_operators.get(thread, ())))
        )
    if not computation and not collected.calls:
        raise UserError(f"{path}: the trace contains no kernels, operators or collective calls: trace some steps")
    steps = collected.gpu_steps if len(collected.gpu_steps) == len(collected.steps) else collected.steps
    steps = steps or _steps_of_optimizer(collected.optimizer)
    distributed = file.distributed
    return RankTrace(
        path=path,
        rank=number(distributed.get("rank")),
        world=number(distributed.get("world_size")),
        base_us=file.base_us,
        steps=steps,
        is_gpu=collected.is_gpu,
        computation=computation,
        calls=collected.calls,
    )


def _collect(event: dict[str, Any], collected: _Collected, groups: dict[str, TracedGroup]) -> None:
    category, name = event.get("cat"), event.get("name")
    if event.get("ph") != "X" or not isinstance(name, str):
        return
    span = _span(event)
    if span is None:
        return
    if category == "kernel":
        collected.is_gpu = True
        if _COLLECTIVE_KERNEL.match(name):
            collected.calls.append(_call_of_kernel(name, span, event.get("args"), groups))
        else:
            collected.kernels.append(span)
    elif category == "cpu_op":
        thread = event.get("tid")
        if "::" in name and not name.startswith("autograd::"):
            _append(collected.operators.setdefault(thread, []), span)
        if name.startswith(("c10d::", "_c10d_functional::")):
            _append(collected.collective_operators.setdefault(thread, []), span)
    elif category in ("user_annotation", "gpu_user_annotation"):
        if step := _STEP.match(name):
            (collected.steps if category == "user_annotation" else collected.gpu_steps)[int(step[1])] = span
        elif category == "user_annotation" and _COLLECTIVE_ANNOTATION.match(name):
            collected.calls.append(_call_of_annotation(name, span, event.get("args"), groups))
        elif category == "user_annotation" and name.startswith(_OPTIMIZER):
            collected.optimizer.setdefault(name, []).append(span)


def _span(event: dict[str, Any]) -> Span | None:
    begin, duration = event.get("ts"), event.get("dur", 0)
    if not isinstance(begin, int | float) or not isinstance(duration, int | float):
        return None
    return Span(begin, begin + max(duration, 0)) if math.isfinite(begin + duration) else None


def _append(spans: list[Span], span: Span) -> None:
    """Append an operator span of a thread. Nested operators follow the enclosing operator and are merged with it."""
    if spans and spans[-1].begin <= span.begin <= spans[-1].end:
        if span.end > spans[-1].end:
            spans[-1] = Span(spans[-1].begin, span.end)
    else:
        spans.append(span)


def _read_groups(distributed: dict[str, Any]) -> dict[str, TracedGroup]:
    """Return the process groups in the trace header, keyed by name."""
    groups = {}
    for entry in distributed.get("pg_config") or ():
        if isinstance(entry, dict):
            name = str(entry.get("pg_name", ""))
            ranks = rank_list(entry.get("ranks"))
            size = number(entry.get("pg_size")) or (len(ranks) if ranks else None)
            groups[name] = TracedGroup(name, str(entry.get("pg_desc", "")), size, ranks)
    return groups


def _call_of_kernel(name: str, span: Span, args: Any, groups: dict[str, TracedGroup]) -> TracedCall:
    args = args if isinstance(args, dict) else {}
    operation = name_operation(str(args.get("Collective name") or name))
    dtype, width = name_type(str(args.get("dtype", "")))
    counts = [n for key in ("In msg nelems", "Out msg nelems") if (n := number(args.get(key))) is not None]
    n_values = max(counts) if counts else None
    group_name = str(args.get("Process Group Name", ""))
    header = groups.get(group_name, TracedGroup(group_name))
    ranks = rank_list(args.get("Process Group Ranks")) or header.ranks
    group = TracedGroup(
        group_name,
        str(args.get("Process Group Description") or header.description),
        number(args.get("Group size")) or header.size or (len(ranks) if ranks else None),
        ranks,
    )
    message_bytes = n_values * width if n_values is not None and width else None
    return TracedCall(operation, dtype or type_of_kernel(name), message_bytes, group, span)


def _call_of_annotation(name: str, span: Span, args: Any, groups: dict[str, TracedGroup]) -> TracedCall:
    """Return a gloo call. The annotation of a gloo call contains shapes and dtypes, but no process group."""
    args = args if isinstance(args, dict) else {}
    dtypes, shapes = args.get("Input type"), args.get("Input Dims")
    dtype, width = name_type(str(dtypes[0]) if isinstance(dtypes, list) and dtypes else "")
    operation = name_operation(name.partition(":")[2])
    group = next(iter(groups.values())) if len(groups) == 1 else TracedGroup()
    n_values = _count_values(shapes[0]) if isinstance(shapes, list) and shapes else None
    if n_values is not None and operation == ALL_GATHER:
        n_values = n_values * group.size if group.size else None
    return TracedCall(operation, dtype, n_values * width if n_values is not None and width else None, group, span)


def _count_values(shape: Any) -> int | None:
    """Return the number of elements for a shape or a list of shapes."""
    if not isinstance(shape, list):
        return None
    if all(isinstance(size, int) for size in shape):
        return math.prod(shape) if shape else None
    counts = [_count_values(inner) for inner in shape]
    return sum(count for count in counts if count is not None) if None not in counts else None


def _steps_of_optimizer(optimizer: dict[str, list[Span]]) -> dict[int, Span]:
    """Return the steps between the ends of consecutive optimizer calls, for the optimizer that is called most often."""
    if not optimizer:
        return {}
    calls = max(optimizer.values(), key=len)
    return {number: Span(first.end, second.end) for number, (first, second) in enumerate(pairwise(sorted(calls)))}
