"""Tests of how collectives use CuPy, and of the calls that the CuPy stand-in rejects as CuPy or CUDA would."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from use_standin import has_gpu, standin

from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.accelerator import Accelerator, DeviceArray, accelerator_of

F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def cupy(need: Callable[[str | None], None]) -> Iterator[Any]:
    need("a GPU is here: test_gpu_transport.py runs on it" if has_gpu() else None)
    with standin():
        import cupy

        yield cupy


@pytest.fixture
def accelerator(cupy: Any) -> Accelerator:
    resolved = accelerator_of(cupy.zeros(3, F32))
    assert resolved is accelerator_of(cupy.zeros(5, F32))
    return resolved


def on_host(x: DeviceArray, accelerator: Accelerator) -> np.ndarray:
    values = np.empty(x.size, x.dtype)
    stream = accelerator.new_stream()
    accelerator.copy(values, x, stream)
    accelerator.mark(stream).wait()
    return values


def test_values_come_and_go_in_the_order_of_events(accelerator: Accelerator) -> None:
    x = np.arange(1000, dtype=F32)
    first, second = accelerator.new_stream(), accelerator.new_stream()
    there = accelerator.memory(x.nbytes).view(F32)
    staged, back = (accelerator.pinned(x.nbytes).view(F32) for _ in range(2))
    staged[:] = x
    begin = accelerator.mark(first)
    accelerator.copy(there, staged, first)
    copied = accelerator.mark(first)
    accelerator.follow(second, copied)
    accelerator.copy(back, there, second)
    end = accelerator.mark(second)
    assert not np.array_equal(back, x), "there was no wait"
    end.wait()
    assert np.array_equal(back, x)
    assert copied.done()
    assert copied.since(begin) >= 0
    assert np.array_equal(on_host(there[10:20], accelerator), x[10:20])


def test_a_missing_wait_is_detected(accelerator: Accelerator) -> None:
    x = np.arange(1000, dtype=F32)
    first, second = accelerator.new_stream(), accelerator.new_stream()
    there, back = accelerator.memory(x.nbytes).view(F32), np.zeros_like(x)
    accelerator.copy(there, x, first)
    accelerator.copy(back, there, second)  # does not wait for the first stream
    accelerator.mark(second).wait()
    assert not np.array_equal(back, x)


def test_an_event_that_is_polled_comes(accelerator: Accelerator) -> None:
    stream, back, x = accelerator.new_stream(), np.zeros(8, np.uint8), np.arange(8, dtype=np.uint8)
    accelerator.copy(back, x, stream)
    end = accelerator.mark(stream)
    assert not end.done()
    while not end.done():
        pass
    assert np.array_equal(back, x)


@pytest.mark.parametrize("dtype", [F32, np.dtype(np.float64), np.dtype(np.float16), BFLOAT16], ids=str)
def test_sums_keep_subnormal_values(accelerator: Accelerator, dtype: np.dtype[Any]) -> None:
    x = np.concatenate([np.arange(1, 400).astype(f"u{dtype.itemsize}").view(dtype), np.ones(100, dtype)])
    stream = accelerator.new_stream()
    total, values = (accelerator.memory(x.nbytes).view(dtype) for _ in range(2))
    accelerator.copy(total, x, stream)
    accelerator.copy(values, x, stream)
    accelerator.add(total, values, stream)
    accelerator.mark(stream).wait()
    assert on_host(total, accelerator).tobytes() == (x + x).tobytes()


def test_memory_that_was_freed_is_poison(accelerator: Accelerator) -> None:
    x = np.arange(1000, dtype=F32)
    there = accelerator.memory(x.nbytes).view(F32)
    stream, back = accelerator.new_stream(), np.zeros_like(x)
    accelerator.copy(there, x, stream)
    accelerator.mark(stream).wait()
    accelerator.copy(back, there, stream)
    del there
    gc.collect()
    accelerator.mark(stream).wait()
    assert not np.isin(back, x).any()


def refusals(cupy: Any, accelerator: Accelerator) -> dict[str, tuple[type[Exception], str, Callable[[], object]]]:
    """List the rejected calls: the error, its message, and a function that raises it."""
    runtime, launch = cupy.cuda.runtime, accelerator.codecs.launch
    x, host, stream = cupy.zeros(100, F32), np.zeros(100, F32), accelerator.new_stream()
    gone = cupy.cuda.Stream(non_blocking=True)
    handle, event = gone.ptr, cupy.cuda.Event(disable_timing=True)
    del gone
    here, there = host.ctypes.data, x.data.ptr
    error = runtime.CUDARuntimeError
    from hpcbench.codecs.convert import sum_build_of

    kernel = accelerator.codecs._module(sum_build_of(F32)).get_function("hb_sum")  # type: ignore[attr-defined]
    return {
        "NumPy looks into it": (TypeError, "Implicit conversion", lambda: np.asarray(x)),
        "a sum with NumPy's": (TypeError, "", lambda: host + x),
        "NumPy's copied to it": (TypeError, "Unsupported type", lambda: cupy.copyto(x, host)),
        "NumPy's filled by it": (TypeError, "fills arrays with a number", lambda: x.__setitem__(slice(3), host[:3])),
        "set from the device": (TypeError, "array of NumPy", lambda: x.set(cupy.zeros(100, F32))),
        "set by other types": (ValueError, "float64", lambda: x.set(np.zeros(100))),
        "bfloat16": (TypeError, "no arrays of bfloat16", lambda: cupy.zeros(3, BFLOAT16)),
        "beyond the end": (error, "beyond the end", lambda: runtime.memcpyAsync(here, there + 4, 400, 4, stream)),
        "into the middle": (error, "reach into", lambda: runtime.memcpyAsync(here, there - 4, 8, 4, stream)),
        "the wrong way": (error, "from host memory", lambda: runtime.memcpyAsync(there, here, 400, 2, stream)),
        "memory of the host": (error, "cannot be set", lambda: runtime.memsetAsync(here, 0, 400, stream)),
        "no pointer": (TypeError, "integer", lambda: runtime.memsetAsync(x, 0, 400, stream)),
        "a stream that is gone": (error, "destroyed", lambda: runtime.memsetAsync(there, 0, 4, handle)),
        "no stream": (error, "does not exist", lambda: launch(sum_build_of(F32), "hb_sum", 1, (there, 1, there), 99)),
        "an event that is not a handle": (TypeError, "integer", lambda: runtime.eventRecord(event, stream)),
        "times of an event without": (error, "without a time", lambda: cupy.cuda.get_elapsed_time(event, event)),
        "NumPy's for a kernel": (TypeError, "numpy.ndarray", lambda: kernel((1,), (256,), (host, 1, there))),
        "a word of 32 bits": (TypeError, "64 bits", lambda: kernel((1,), (256,), (there, np.int32(1), there))),
        "a device that is not here": (error, "does not exist", lambda: runtime.setDevice(1)),
        "what it has not": (AttributeError, "add", lambda: cupy.add(x, x)),
    }


def test_refusals_of_cupy(cupy: Any, accelerator: Accelerator) -> None:
    for what, (error, message, call) in refusals(cupy, accelerator).items():
        with pytest.raises(error) as raised:
            call()
        assert message in str(raised.value), what
