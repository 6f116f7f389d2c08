"""Tests that damaged messages of sparse codecs are rejected, or are decoded without other effects."""

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import Array, encode, uniform
from sparse_cases import BUILDS, CHUNK, case, form_of

from hpcbench.codecs.base import Codec
from hpcbench.codecs.sparse import Threshold


def refused(codec: Codec, wire: npt.NDArray[np.uint8], n: int) -> bool:
    out = np.full(n + 64, 9, dtype=np.float32)
    try:
        codec.decode(wire.copy(), out[:n])
    except ValueError as error:
        assert str(error).startswith(f"{codec.name}: ")
        return True
    finally:
        assert (out[n:] == 9).all(), "written past the end"
    return False


def with_words(wire: npt.NDArray[np.uint8], at: int, *values: int, dtype: str = "<u4") -> npt.NDArray[np.uint8]:
    damaged = wire.copy()
    raw = np.array(values, dtype=dtype).view(np.uint8)
    damaged[at : at + raw.size] = raw
    return damaged


def message(density: float, n: int) -> Array:
    return (1 + np.arange(n) % 5).astype(np.float32) * (uniform(n, 48) < density)


@pytest.mark.parametrize("name", ["topk:0.0003", "topk:0.02", "topk:0.3", "topk:1", "threshold:0.5", "rowsparse:4"])
def test_cuts_and_additions_are_refused(name: str) -> None:
    codec, _ = case(name)
    x = message(0.02, CHUNK + 900)
    wire = encode(codec, x)
    assert not refused(codec, wire, x.size)
    for size in [*range(30), *range(30, wire.size, max(1, wire.size // 60)), wire.size - 2, wire.size - 1]:
        assert refused(codec, wire[:size], x.size), size
    assert refused(codec, np.append(wire, np.zeros(4, dtype=np.uint8)), x.size)
    for n in (0, CHUNK, x.size + CHUNK):
        assert refused(codec, wire, n), n


@pytest.mark.parametrize("name", ["topk:0.02", "topk:0.3", "threshold:0.5"])
@pytest.mark.parametrize("build", BUILDS)
def test_wrong_heads_are_refused(name: str, build: str) -> None:
    codec, _ = case(name, BUILDS[build])
    x = message(0.02, CHUNK + 900)
    wire = encode(codec, x)
    start, k = int(wire[:8].view("<u8")[0]), int(wire[8:12].view("<u4")[0])
    for value in (0, start - 4, start + 4, 2**63, 2**64 - 1):
        assert refused(codec, with_words(wire, 0, value, dtype="<u8"), x.size), value
    for value in (0, k - 1, k + 1, CHUNK, CHUNK + 1, 2**31, 2**32 - 1):
        assert refused(codec, with_words(wire, 8, value), x.size), value
        assert refused(codec, with_words(wire, 8 + start, value), x.size), value


@pytest.mark.parametrize("build", BUILDS)
def test_wrong_indices_are_refused(build: str) -> None:
    n = 3000
    codec = Threshold(0.5, BUILDS[build])

    def indexed(k: int, form: str) -> tuple[npt.NDArray[np.uint8], int]:
        x = np.zeros(n, dtype=np.float32)
        x[np.arange(k) * (n // k)] = 1
        wire = encode(codec, x)
        assert form_of(wire, n, 4) == form
        assert not refused(codec, wire, n)
        return wire, 4 + 4 * k

    wire, at = indexed(2, "places")
    for places in ((5, 5), (1500, 0), (0, n), (0, 0xFFFF), (n, n + 1)):
        assert refused(codec, with_words(wire, at, *places, dtype="<u2"), n), places

    wire, at = indexed(1000, "bitmap")
    word = int(wire[at : at + 4].view("<u4")[0])
    for wrong in (word ^ 1, word ^ 2, 0, 0xFFFFFFFF):
        assert refused(codec, with_words(wire, at, wrong), n), wrong
    end = wire.size - 4  # n is not a multiple of 32: set a bit after the last value, and clear another
    last = int(wire[end:].view("<u4")[0])
    assert refused(codec, with_words(with_words(wire, at, word ^ 1), end, last | 1 << 31), n)

    x = np.zeros(n, dtype=np.float32)
    x[:1000] = 1
    wire = encode(codec, x)
    assert form_of(wire, n, 4) == "bitmap"
    assert refused(codec, with_words(wire, 4 + 4000 + 4 * 80, 1), n), "one more, far after the end"

    wire, at = indexed(100, "grouped")
    high = wire[at : at + 16].view("<u4")  # 100 + 12 bits
    low = at + 16
    assert refused(codec, with_words(wire, at, int(high[0]) ^ 1), n)
    assert refused(codec, with_words(wire, at, *([0] * 4)), n)
    assert refused(codec, with_words(wire, at, int(high[0]) & ~1, *map(int, high[1:3]), int(high[3]) | 1 << 31), n)
    assert refused(codec, with_words(wire, low, int(wire[low + 1]), dtype="u1"), n), "one position twice"
    assert refused(codec, with_words(wire, low, 255, dtype="u1"), n), "a step back"
    assert refused(codec, with_words(wire, low + 99, 255, dtype="u1"), n), "after the last value"


@pytest.mark.parametrize("build", BUILDS)
def test_positions_that_do_not_increase_are_refused(build: str) -> None:
    n, k = 40_000, 4000
    codec = Threshold(0.5, BUILDS[build])
    x = np.zeros(n, dtype=np.float32)
    x[:: n // k] = 1
    wire = encode(codec, x)
    assert form_of(wire, n, 4) == "grouped"
    low = wire.size - k
    for rank in range(1, k):  # values that are decoded together
        if wire[low + rank] > wire[low + rank - 1]:
            assert refused(codec, with_words(wire, low + rank, int(wire[low + rank - 1]), dtype="u1"), n), rank


@pytest.mark.parametrize("name", ["topk:0.02", "topk:0.3", "threshold:0.5", "rowsparse:4"])
@pytest.mark.parametrize("build", BUILDS)
def test_no_byte_writes_outside(name: str, build: str) -> None:
    """Whatever byte is changed, the message is rejected or decodes to n values."""
    codec, _ = case(name, BUILDS[build])
    x = message(0.05, 2500)
    wire = encode(codec, x)
    outcomes = set()
    for at in range(0, wire.size, 3):
        for flip in (1, 0x80, 0xFF):
            damaged = wire.copy()
            damaged[at] ^= flip
            outcomes.add(refused(codec, damaged, x.size))
    assert outcomes == {True, False}
