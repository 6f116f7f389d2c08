"""The emulated part of `cupy.cuda`."""

from cupy.cuda import compiler, nvrtc, runtime  # noqa: F401
from cupy.cuda.device import Device  # noqa: F401
from cupy.cuda.memory import (  # noqa: F401
    MemoryHook,
    MemoryPointer,
    PinnedMemory,
    PinnedMemoryPointer,
    alloc,
    alloc_pinned_memory,
    set_pinned_memory_allocator,
)
from cupy.cuda.stream import (  # noqa: F401
    Event,
    ExternalStream,
    Stream,
    get_current_stream,
    get_elapsed_time,
)
