"""Tests of the chunk container of MPC and xpk, and of how values are sent and received."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import reference_chunks as reference
from codec_data import POISON, Array, bell, builds, decode, encode, float_sets, random_words, same_bits, uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.mpc import MpcCodec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.codecs.xpk import XpkCodec

BUILDS = builds()
CODECS: dict[str, Callable[[Kernels | None], Codec]] = {"mpc": lambda build: MpcCodec(1, build), "xpk": XpkCodec}
CODERS = {"mpc": reference.mpc_encode(1), "xpk": reference.xpk_encode}
RAW = reference.RAW
FLOATS = {"f4": np.dtype(np.float32), "f2": np.dtype(np.float16), "bf16": BFLOAT16}

each_codec = pytest.mark.parametrize("name", CODECS)
each_build = pytest.mark.parametrize("build", BUILDS)
each_float = pytest.mark.parametrize("dtype", FLOATS)


def rounded(x: Array, dtype: str) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(FLOATS[dtype])


def inputs(n: int) -> dict[str, Array]:
    """Return data sets of compressible and incompressible values, each about one chunk long."""
    patterns = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0xFFFFFFFF, 1, 0x807FFFFF, 0x3F803F80]
    mixed = random_words(n // 8 + 1, 60).view(np.uint8)[:n].copy()
    mixed[mixed.size // 2 :] = 7
    return {"mixed": mixed, "patterns": np.resize(np.array(patterns, dtype=np.uint32).view(np.uint8), n)}


# ---------------------------------------------------------------------------------------------- round trips
@each_build
@each_codec
@pytest.mark.parametrize("dtype", [*FLOATS, "u1", "f8", "i4", "c8", "?"])
def test_every_length_and_type(dtype: str, name: str, build: str) -> None:
    kind = FLOATS.get(dtype) or np.dtype(dtype)
    codec = CODECS[name](BUILDS[build])
    edges = {edge // kind.itemsize + k for edge in (4096, 8192) for k in (-1, 0, 1)}
    for n in [*range(71), 1023, 1024, 1025, *sorted(edges)]:
        for label, raw in inputs(n * kind.itemsize).items():
            x = (raw & 1).view(bool) if dtype == "?" else raw.view(kind)
            wire = encode(codec, x)
            assert wire.tobytes() == reference.pack(x, CODERS[name]), (label, n)
            assert same_bits(decode(codec, wire, n, kind), x), (label, n)


@each_build
@each_codec
@each_float
def test_all_patterns_of_16_bits(dtype: str, name: str, build: str) -> None:
    x = np.arange(65536, dtype=np.uint16).view(FLOATS[dtype])
    codec = CODECS[name](BUILDS[build])
    assert same_bits(decode(codec, encode(codec, x), x.size, x.dtype), x)


@each_build
@each_codec
@pytest.mark.parametrize("dtype", [*FLOATS, "f8"])
def test_any_alignment(dtype: str, name: str, build: str) -> None:
    codec = CODECS[name](BUILDS[build])
    x = bell(4501, 61).astype(FLOATS.get(dtype, np.dtype("f8")))
    expected = encode(codec, x)
    scalar = np.ones((), dtype=x.dtype)
    for offset in (1, 2, 3, 6):
        values = np.zeros(x.nbytes + 8, dtype=np.uint8)[offset : offset + x.nbytes].view(x.dtype)
        values[:] = x
        room = codec.wire_bytes(x.size, x.dtype)
        wire = np.zeros(room + 8, dtype=np.uint8)[offset : offset + room]
        used = codec.encode(values, wire)
        assert same_bits(wire[:used], expected)
        values[:] = scalar
        codec.decode(wire[:used], values)
        assert same_bits(values.copy(), x)
        codec.decode(wire[:used], values, accumulate=True)
        assert same_bits(values.copy(), x + x)


@each_codec
def test_sizes_never_exceed_the_promised_growth(name: str) -> None:
    codec = CODECS[name](None)
    for n in (1, 1023, 1024, 1025, 10_000):
        x = random_words(n, 64).astype(np.uint32)
        chunks = -(-n // 1024)
        assert encode(codec, x).size == codec.wire_bytes(n, x.dtype) == 4 * n + 2 * chunks + 2 * (chunks % 2)


# ---------------------------------------------------------------------------------------------- sums
@each_build
@each_codec
@pytest.mark.parametrize("dtype", [*FLOATS, "f8", "i4"])
def test_accumulate_adds_in_the_type_of_the_values(dtype: str, name: str, build: str) -> None:
    kind = FLOATS.get(dtype) or np.dtype(dtype)
    codec = CODECS[name](BUILDS[build])
    x, base = (bell(2100, 62) * 100).astype(kind), (bell(2100, 63) * 100).astype(kind)
    total = base.copy()
    codec.decode(encode(codec, x), total, accumulate=True)
    assert same_bits(total, base + x)


@each_build
@each_codec
@pytest.mark.parametrize("dtype", ["f2", "bf16"])
def test_halves_are_summed_in_float32(dtype: str, name: str, build: str) -> None:
    codec = CODECS[name](BUILDS[build])
    x, base = rounded(bell(4500, 62), dtype), bell(4500, 63).astype(np.float32)
    total = base.copy()
    codec.decode(encode(codec, x), total, dtype=x.dtype, accumulate=True)
    assert same_bits(total, base + x.astype(np.float32))
    codec.decode(encode(codec, x), total, dtype=x.dtype)
    assert same_bits(total, x.astype(np.float32))


@each_build
@each_codec
@each_float
def test_residual_is_the_encoding_error(dtype: str, name: str, build: str) -> None:
    codec = CODECS[name](BUILDS[build])
    x, residual = rounded(bell(4500, 64), dtype), (bell(4500, 65) * 1e-3).astype(np.float32)
    x[7], x[8] = np.inf, np.nan
    wanted = x.astype(np.float32) + residual
    sent = rounded(wanted, dtype)
    wire = np.full(codec.wire_bytes(x.size, x.dtype), POISON, dtype=np.uint8)
    used = codec.encode(x, wire, residual=residual)
    arrived = decode(codec, wire[:used], x.size, x.dtype)
    assert np.array_equal(np.isnan(arrived), np.isnan(sent))
    assert same_bits(arrived[~np.isnan(arrived)], sent[~np.isnan(sent)])
    with np.errstate(invalid="ignore"):
        lack = wanted - sent.astype(np.float32)
    assert same_bits(residual, np.where(np.isfinite(lack), lack, np.float32(0)))
    assert residual.any() == (dtype != "f4"), "float32 values have no error"


@each_build
@each_codec
@each_float
def test_a_hop_is_the_composition_of_its_parts(dtype: str, name: str, build: str) -> None:
    codec = CODECS[name](BUILDS[build])
    x, local = rounded(bell(4500, 66), dtype), rounded(bell(4500, 67), dtype)
    wire = encode(codec, x)
    out = np.full(codec.wire_bytes(x.size, x.dtype), POISON, dtype=np.uint8)
    used = codec.decode_add_encode(wire, local, out)
    total = rounded(x.astype(np.float32) + local.astype(np.float32), dtype)
    assert same_bits(out[:used], encode(codec, total))
    with pytest.raises(ValueError, match="bytes do not encode"):
        codec.decode_add_encode(wire[:-4], local, out)


# ---------------------------------------------------------------------------------------------- damage
def container(name: str, dtype: str = "f4") -> tuple[Array, npt.NDArray[np.uint8]]:
    """Return a message with compressible chunks, one of them sparse, and an incompressible chunk."""
    n = 4096 // FLOATS[dtype].itemsize
    noise = random_words(n, 68).astype(np.uint32).view(np.float32)
    parts: list[Array] = [bell(n, 65), bell(n, 66) * (uniform(n, 67) < 0.3), noise, bell(700, 69)]
    x = rounded(np.concatenate([part.astype(np.float32) for part in parts]), dtype)
    return x, encode(CODECS[name](None), x)


def refused(codec: Codec, wire: npt.NDArray[np.uint8], n: int, dtype: str = "f4") -> bool:
    try:
        decode(codec, wire, n, FLOATS[dtype])  # reads past the end
    except ValueError as error:
        assert str(error).startswith(f"{codec.name}: ")
        return True
    return False


@each_codec
def test_every_cut_is_refused(name: str) -> None:
    x, wire = container(name)
    codec = CODECS[name](None)
    for size in [*range(40), *range(40, wire.size, 97), wire.size - 2, wire.size - 1]:
        assert refused(codec, wire[:size].copy(), x.size), size
    assert not refused(codec, wire, x.size)


@each_codec
def test_bytes_after_the_end_and_other_lengths_are_refused(name: str) -> None:
    x, wire = container(name)
    codec = CODECS[name](None)
    assert refused(codec, np.append(wire, np.uint8(0)), x.size)
    assert refused(codec, np.append(wire, np.zeros(4, dtype=np.uint8)), x.size)
    assert refused(codec, np.zeros(1, dtype=np.uint8), 0)
    for n in (x.size - 1024, x.size + 1024, 0):
        assert refused(codec, wire, n), n


@each_build
@each_codec
def test_wrong_lengths_of_chunks_are_refused(name: str, build: str) -> None:
    x, wire = container(name)
    heads = wire[:8].view("<u2")
    assert (heads == RAW).sum() == 1
    for length in (0, 1, int(heads[1]) - 1, int(heads[1]) + 1, 1024, 1025, 0x7FFF, 0xFFFE, RAW):
        damaged = wire.copy()
        damaged[2:4].view("<u2")[0] = length
        assert refused(CODECS[name](BUILDS[build]), damaged, x.size), length


@each_build
@each_codec
@each_float
def test_a_flipped_bit_is_refused_or_changes_the_values(dtype: str, name: str, build: str) -> None:
    x, wire = container(name, dtype)
    codec = CODECS[name](BUILDS[build])
    unseen = 0
    for at in [*range(300), *range(300, wire.size, 41)]:
        damaged = wire.copy()
        damaged[at] ^= 1 << at % 8
        if not refused(codec, damaged, x.size, dtype):
            unseen += same_bits(decode(codec, damaged, x.size, x.dtype), x)
    assert unseen <= 8, "only padding bits may change unnoticed"


@each_codec
@each_float
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes_are_refused_or_decoded(dtype: str, name: str, data: st.DataObject) -> None:
    """Random chunks have valid lengths. Nothing is written past the end, and all builds decode the same values."""
    n = data.draw(st.integers(1, 4096 // FLOATS[dtype].itemsize))
    size = data.draw(st.integers(0, max(0, -(-n * FLOATS[dtype].itemsize // 4) - 1)))
    body = random_words(size // 2 + 1, data.draw(st.integers(0, 2**31))).view(np.uint8)[: 4 * size].copy()
    plausible = data.draw(st.binary(max_size=12))
    body[: len(plausible)] = np.frombuffer(plausible, dtype=np.uint8)[: body.size]
    wire = np.concatenate([np.array([size, 0], dtype="<u2").view(np.uint8), body])
    outcomes = set()
    for kernels in BUILDS.values():
        codec = CODECS[name](kernels)
        gone = refused(codec, wire, n, dtype)
        outcomes.add(b"refused" if gone else decode(codec, wire, n, FLOATS[dtype]).tobytes())
    assert len(outcomes) == 1


@each_codec
def test_both_kinds_of_chunk_occur(name: str) -> None:
    sets = {label: encode(CODECS[name](None), x)[:6].view("<u2") for label, x in float_sets(2500).items()}
    assert (sets["bit-patterns"] == RAW).any()
    assert all((sets[label][:2] < 1000).all() for label in ("bell", "smooth", "zeros", "gradient"))
