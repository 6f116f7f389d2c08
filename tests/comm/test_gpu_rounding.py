"""Tests of device values that are sent in another dtype: what the MPI library receives, and what is returned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_accelerator import CALLER, LazyAccelerator, OnDevice, address, seen

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import Slice, Tally
from hpcbench.comm.places import DevicePlace

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def values(n: int = 1001) -> np.ndarray:
    x = np.random.default_rng(n).standard_t(2, n).astype(F32)
    x[:4] = np.inf, -0.0, 70_000.0, 1e-40
    return x


def late(accelerator: LazyAccelerator, x: np.ndarray) -> OnDevice:
    """Return an array that the caller's stream has not filled yet."""
    array = OnDevice(np.full_like(x, 7.7e33))
    accelerator.fill(array, x)
    return array


def rounded(x: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(dtype or x.dtype)


def carry(call: Slice) -> None:
    """Wait for the events of a slice."""
    for waited in call:
        while not waited.done():
            pass


def doubling(given: list[Any]) -> Callable[[Any, Any], Slice]:
    """Return a collective that doubles its input as soon as it begins."""

    def at(x: Any) -> np.ndarray:
        return x if isinstance(x, np.ndarray) else seen(x.view(np.uint8)).view(x.dtype)

    def call(here: Any, there: Any) -> Slice:
        given[:] = here, there
        at(there)[...] = at(here) * here.dtype.type(2)
        return
        yield

    return call


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", [None, BFLOAT16, F16, F32], ids=str)
@pytest.mark.parametrize(("aware", "on_host"), [(False, False), (True, False), (True, True), (False, True)])
def test_the_library_gets_values_as_they_travel_where_it_can_read_them(aware, on_host, dtype, in_place):
    accelerator, given = LazyAccelerator(), []
    pools, x = Pools(accelerator, aware), values()
    seen = []
    for _ in range(6):  # more iterations than streams
        source = late(accelerator, x)
        target = source if in_place else late(accelerator, np.zeros_like(x))
        place = DevicePlace(pools, CALLER)
        arrays = [accelerator.array(a, CALLER) for a in (source, target)]
        if in_place:
            arrays[1] = arrays[0]
        carry(place.by_library(doubling(given), *arrays, dtype, on_host=on_host))
        seen.append(accelerator.buffers)
        assert [isinstance(a, np.ndarray) for a in given] == [on_host or not aware] * 2
        assert [a.dtype for a in given] == [dtype or F32] * 2
        assert (address(given[0]) == address(given[1])) == in_place
        with np.errstate(over="ignore"):
            doubled = rounded(x, dtype) * (dtype or F32).type(2)
        assert target.values.tobytes() == doubled.astype(F32).tobytes()
        if not in_place:
            assert source.values.tobytes() == x.tobytes()
    assert len(set(seen)) == 1, "buffers are returned"
    as_it_is = aware and not on_host and dtype in (None, F32)
    assert (seen[0] == (0, 0)) == as_it_is
    assert (accelerator.to_host > 0) == (on_host or not aware)
    assert accelerator.elsewhere == 0


@pytest.mark.parametrize("dtype", [BFLOAT16, F16, F32], ids=str)
def test_values_can_be_replaced_by_their_decoded_form(dtype):
    accelerator, x = LazyAccelerator(), values()
    place = DevicePlace(Pools(accelerator, False), CALLER)
    array = OnDevice(x.copy())
    memory = place.memory(get_codec("none"), dtype, Tally(), sealed=False)
    memory.round_in_place(accelerator.array(array, CALLER))
    memory.mark().wait()
    assert array.values.tobytes() == rounded(x, dtype).astype(F32).tobytes()
    assert (accelerator.allocated == 0) == (dtype == F32)
    assert [kernel for kernel, _ in accelerator.codecs.launched] == ([] if dtype == F32 else ["hb_round", "hb_widen"])
