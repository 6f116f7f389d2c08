"""Tests of hpcbench's codecs for numcodecs and zarr. If numcodecs is missing, a stand-in replaces its base class."""

import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest


class _Codec:
    """A stand-in for numcodecs.abc.Codec.

    As documented, the configuration consists of the public attributes and the ID.
    """

    codec_id: str

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, **{k: v for k, v in vars(self).items() if not k.startswith("_")}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)


@pytest.fixture(scope="module")
def doors() -> Iterator[dict[str, Any]]:
    spec = find_spec("numcodecs")
    if spec is None:
        stand_in, base = ModuleType("numcodecs"), ModuleType("numcodecs.abc")
        base.Codec = _Codec  # type: ignore[attr-defined]
        sys.modules |= {"numcodecs": stand_in, "numcodecs.abc": base}
    ours = {entry.name: entry for entry in entry_points(group="numcodecs.codecs") if entry.name.startswith("hpcbench.")}
    yield {name: entry.load() for name, entry in ours.items()}
    if spec is None:
        for name in ("numcodecs", "numcodecs.abc", "hpcbench.codecs.numcodecs_door"):
            sys.modules.pop(name, None)


def values(dtype: str, shape: tuple[int, ...] = (33, 7)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", ["hpcbench.xpk", "hpcbench.mpc"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lossless_codecs_give_every_bit_back(doors: dict[str, Any], name: str, dtype: str) -> None:
    codec = doors[name]()
    x = values(dtype)
    wire = codec.encode(x)
    assert np.array_equal(codec.decode(wire).view(np.uint8), x.reshape(-1).view(np.uint8))
    out = np.empty_like(x)
    assert codec.decode(wire, out) is out
    assert np.array_equal(out, x)
    raw = bytearray(x.nbytes)
    codec.decode(wire, raw)
    assert bytes(raw) == x.tobytes()


def test_a_column_major_array_is_read_in_memory_order(doors: dict[str, Any]) -> None:
    codec, x = doors["hpcbench.xpk"](), np.asfortranarray(values("float32"))
    assert np.array_equal(codec.decode(codec.encode(x)), x.reshape(-1, order="F"))


def test_zfp_has_a_rate_which_is_its_configuration(doors: dict[str, Any]) -> None:
    x, sizes = values("float32", (4096,)), []
    for rate, bound in ((8, 0.5), (16, 5e-3)):
        codec = doors["hpcbench.zfp"](rate=rate)
        config = codec.get_config()
        assert config == {"id": "hpcbench.zfp", "rate": rate}
        again = doors["hpcbench.zfp"].from_config({"rate": config["rate"]})
        wire = codec.encode(x)
        sizes.append(len(wire))
        assert np.max(np.abs(again.decode(wire) - x)) < bound
    assert sizes[0] < 0.3 * x.nbytes < sizes[1] < 0.55 * x.nbytes
    with pytest.raises(ValueError, match="zfp:R with R from 4 to 32"):
        doors["hpcbench.zfp"](rate=77)


def test_malformed_encodings_are_refused(doors: dict[str, Any]) -> None:
    codec = doors["hpcbench.xpk"]()
    wire = codec.encode(values("float32"))
    longer = wire[:8] + (1 << 50).to_bytes(8, "little") + wire[16:]
    for bad in (b"", b"HPCB", b"X" + wire[1:], wire[:5] + b"\x09" + wire[6:], wire + bytes(9999), longer):
        with pytest.raises(ValueError, match=r"hpcbench\.xpk: "):
            codec.decode(bad)
    with pytest.raises(ValueError, match="the output has 230"):
        codec.decode(wire, np.empty(230, np.float32))
    with pytest.raises(TypeError, match="values of type int64"):
        codec.encode(np.arange(8))
