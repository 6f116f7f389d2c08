"""Tests that kernels compiled for Arm and POWER give the bytes of x86-64. The kernels run under an emulator."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from codec_data import Array, decode, encode, same_bits
from foreign import PROCESSORS, Foreign, build, programs
from test_codec_golden import FILE, cases, digests, inputs
from tools import explain_missing

from hpcbench.codecs.library import Kernels, kernels, library_path
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.spec import FAMILIES, parse
from hpcbench.codecs.types import SHORT, type_of

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("other processors")]


@pytest.fixture(scope="module", params=PROCESSORS)
def foreign(request: pytest.FixtureRequest, need: Callable[[str | None], None]) -> Iterator[Foreign]:
    need(explain_missing(*programs(request.param)))
    with Foreign(build(request.param), request.param) as process:
        yield process


def test_streams_equal_the_committed_digests(foreign: Foreign) -> None:
    assert digests(foreign.kernels()) == json.loads(FILE.read_text())


def results(name: str, x: Array, build: Kernels) -> list[Array | int]:
    """Return the results of decoding, accumulating, and encoding with error feedback and with a sum."""
    codec = get_codec(name, build)
    wire = encode(codec, x, seed=3)
    out = [decode(codec, wire, x.size, x.dtype)]
    total = np.linspace(-1, 1, x.size).astype(x.dtype)
    codec.decode(wire, total, accumulate=True)
    out.append(total)
    if type_of(x.dtype) in SHORT:
        residual = np.linspace(-1e-3, 1e-3, x.size, dtype=np.float32)
        again = np.zeros(codec.wire_bytes(x.size, x.dtype), np.uint8)
        used = codec.encode(x, again, residual=residual, seed=4)
        hop = np.zeros_like(again)
        hop_used = codec.decode_add_encode(wire, x, hop, seed=5)
        out += [again[:used], residual, hop[:hop_used]]
    return out


def test_decoding_sums_and_error_feedback_have_the_same_bits(foreign: Foreign) -> None:
    ours, theirs = kernels("generic"), foreign.kernels()
    data, families = {dtype: inputs(dtype) for _, dtype in cases()}, set()
    for name, dtype in cases():
        if name == "none":
            continue
        for label in ("gradient", "mixed-exponents", "special"):
            x = data[dtype][label][:1021]
            for here, there in zip(results(name, x, ours), results(name, x, theirs), strict=True):
                assert same_bits(here, there), f"{name} {dtype} {label}"
        families.add(parse(name).family)
    assert families == set(FAMILIES) - {"none"}


def test_the_same_damaged_bytes_are_refused(foreign: Foreign) -> None:
    x = inputs(np.dtype(np.float32))["heavy-tail"][:500]
    refused = 0
    for name in ("mpc", "xpk", "topk:0.25", "threshold:0.001", "rowsparse:7"):
        wire = encode(get_codec(name, kernels("generic")), x)
        for place in range(16):
            damaged = wire.copy()
            damaged[place] ^= 1 << place % 8
            answers = []
            for functions in (kernels("generic"), foreign.kernels()):
                try:
                    answers.append(decode(get_codec(name, functions), damaged, x.size, x.dtype).tobytes())
                except ValueError:
                    answers.append(b"refused")
            assert answers[0] == answers[1], f"{name} byte {place}"
            refused += answers[0] == b"refused"
    assert refused >= 10


def test_optimizer_and_conversions_have_the_same_bits(foreign: Foreign) -> None:
    with Foreign(library_path()) as here:
        expected = here.arithmetic()
    assert len(expected) > 1_000_000 and expected == foreign.arithmetic()
