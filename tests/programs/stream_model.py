"""A strict model of CUDA streams, PyTorch's caching allocator and NCCL, with all ranks in one thread.

Streams, events and the order of accesses come from `streams` (tests/comm). Each PyTorch operation on a tensor of the
model is queued on the current stream and runs later. The model raises `StreamError`, which names both conflicting
calls, if

- two streams access the same memory, one of them writes, and no event orders the accesses;
- memory is freed while a stream other than its allocation stream may still access it;
- the host reads values that it has not waited for;
- the collectives of two ranks differ in order or size, or a rank lacks a collective.

Values are computed as well, in adversarial order. Memory contains poison before it is written and after it is
freed.

The model does not cover the GPU itself, PyTorch's futures on a GPU, or time.
"""

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
from streams import Event, Stream, StreamError, Streams, Use, Uses, find_place

POISON = 0x5A
_ALLOCATES = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty_strided")


@dataclass(eq=False)
class Block:
    """An allocation on one rank."""

    rank: int
    stream: str
    buffer: np.ndarray
    place: str
    uses: Uses = field(default_factory=Uses)

    @property
    def start(self) -> int:
        return int(self.buffer.ctypes.data)


class Cuda:
    """Stand-in for the parts of torch.cuda that hpcbench uses."""

    def __init__(self, model: "Model") -> None:
        self._model = model
        self.capturing = False

    def Stream(self, device: Any = None) -> Stream:  # noqa: N802
        return self._model.new_stream("private")

    def Event(self, enable_timing: bool = False) -> Event:  # noqa: N802
        return Event(self._model)

    def current_stream(self, device: Any = None) -> Stream:
        return self._model.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._model.current = self._model.current, stream
        try:
            yield
        finally:
            self._model.current = before

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


class Model(TorchDispatchMode, Streams):
    """The streams and memory of all ranks. Use `rank` to act as one rank, then `run` to execute the queued work."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        Streams.__init__(self)
        self._blocks: list[Block] = []
        self._late: list[str] = []
        """Errors that cannot be raised where they are found, for example while memory is freed."""
        self._callers: dict[int, Stream] = {}
        self._rank = 0
        self.groups: dict[str, list[list[Any]]] = defaultdict(list)

    def new_stream(self, name: str) -> Stream:
        number = sum(stream.startswith(f"{name} of rank {self._rank}") for stream in self.streams)
        return Stream(self, f"{name} of rank {self._rank}" + (f", {number}" if number else ""))

    @contextmanager
    def rank(self, rank: int) -> Iterator[None]:
        """Act as a rank during the block, on the rank's caller stream."""
        self._rank = rank
        if rank not in self._callers:
            self._callers[rank] = self.new_stream("caller")
        self.current = self._callers[rank]
        with self:
            yield
        self.check()

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the model. The caller's stream writes its values later."""
        with _disable_current_modes():
            memory = self._allocate(values.shape, values.stride(), values.dtype)
            shadow, source = self._shadow(memory), values.clone()
        self._submit("fill", [], [memory], lambda: shadow.copy_(source))
        return memory

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of a tensor after all work has run."""
        return self._shadow(tensor).clone()

    def check(self) -> None:
        """Raise an error that was found while memory was freed."""
        if self._late:
            raise StreamError(self._late.pop(0))

    def run(self, seed: int) -> None:
        """Run all queued work.

        Seed 0 runs the newest streams first, seed 1 the oldest, and other seeds a random order.
        """
        self.check()
        with _disable_current_modes():
            super().run(seed)
        self.check()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema, name = kwargs or {}, func._schema, func._schema.name
        self.check()
        if name in _ALLOCATES:
            like = func(*args, **kwargs)
            return self._allocate(like.shape, like.stride(), like.dtype)
        aliases = [value.alias_info for value in schema.returns]
        if aliases and all(alias is not None and not alias.is_write for alias in aliases):
            return func(*args, **kwargs)  # a view
        written, reads = self._arguments(schema, args, kwargs)
        if name in ("aten::item", "aten::_local_scalar_dense"):
            self._read_by_host(reads[0], find_place("item"))
            return func(*args, **kwargs)
        late_args, late_kwargs = tree_map(self._shadow_any, (args, kwargs))
        if written:
            self._submit(name, reads, written, lambda: func(*late_args, **late_kwargs))
            return written[0] if schema.returns else None
        like = func(*args, **kwargs)
        out = self._allocate(like.shape, like.stride(), like.dtype)
        target = self._shadow(out)
        self._submit(name, reads, [out], lambda: target.copy_(func(*late_args, **late_kwargs)))
        return out

    def _arguments(self, schema: Any, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        written, reads = [], []
        for k, argument in enumerate(schema.arguments):
            value = args[k] if k < len(args) else kwargs.get(argument.name)
            tensors = [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]
            writes = argument.alias_info is not None and argument.alias_info.is_write
            (written if writes else reads).extend(tensors)
        return written, reads

    def _submit(self, what: str, reads: list[torch.Tensor], writes: list[torch.Tensor], run: Callable[[], Any]) -> None:
        """Queue an operation on the current stream, and check its memory accesses against earlier accesses."""

        def work() -> bool:
            run()
            return True

        place = find_place(f"{what} on stream {self.current.name!r}")
        count = self.current.put(place, work)
        for tensors, write in ((reads, False), (writes, True)):
            for tensor in tensors:
                self.use(tensor, self.current, count, write, place)

    def use(self, tensor: torch.Tensor, stream: Stream, count: int, writes: bool, place: str) -> None:
        """Record a memory access."""
        if not tensor.numel():
            return
        block = self._block(tensor)
        low = tensor.data_ptr() - block.start
        reach = sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride(), strict=True))
        use = Use(stream.name, count, low, low + (reach + 1) * tensor.element_size(), writes, place)
        block.uses.add(use, stream.clock)

    def _read_by_host(self, tensor: torch.Tensor, place: str) -> None:
        for use in self._block(tensor).uses:
            if use.writes and use.count > self.host.get(use.stream, 0):
                raise StreamError(f"the host reads by {place} what it has not waited for: {use.place}")

    def _allocate(self, size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else -1
        nbytes = (reach + 1) * dtype.itemsize
        block = Block(self._rank, self.current.name, np.full(max(16, -(-nbytes // 16) * 16), POISON, np.uint8), "")
        block.place = find_place("memory")
        self._blocks.append(block)
        memory = block.buffer[:]  # lives as long as the tensor's storage
        weakref.finalize(memory, self._free, block)
        return torch.from_numpy(memory).view(dtype).as_strided(tuple(size), tuple(stride))

    def _free(self, block: Block) -> None:
        """Return memory to the allocator. The allocation stream may reuse the memory immediately."""
        if sys.is_finalizing() or block not in self._blocks:
            return
        self._blocks.remove(block)
        owner = self.streams[block.stream]
        for use in block.uses:
            ordered = max(owner.clock.get(use.stream, 0), self.host.get(use.stream, 0))
            if use.stream != block.stream and use.count > ordered:
                self._late.append(f"{block.place} of stream {block.stream!r} is freed before the end of {use.place}")
        owner.put("reuse", lambda: bool(block.buffer.fill(POISON)) or True)

    def _block(self, tensor: torch.Tensor) -> Block:
        at = tensor.data_ptr()
        for block in self._blocks:
            if block.start <= at < block.start + block.buffer.size:
                return block
        storage = tensor.untyped_storage()  # memory of the test, such as residuals
        array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        self._blocks.append(Block(self._rank, self.current.name, array, find_place("memory")))
        return self._blocks[-1]

    def _shadow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that aliases the same memory without keeping it allocated."""
        if not tensor.numel():
            return tensor.clone()
        block = self._block(tensor)
        offset = (tensor.data_ptr() - block.start) // tensor.element_size()
        usable = block.buffer[: block.buffer.size // tensor.element_size() * tensor.element_size()]
        return torch.from_numpy(usable).view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), offset)

    def _shadow_any(self, value: Any) -> Any:
        return self._shadow(value) if isinstance(value, torch.Tensor) else value
