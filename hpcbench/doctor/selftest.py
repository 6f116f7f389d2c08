"""Self-test of every codec family on fixed values.

Encoded bytes must match the committed digests, and errors must be within bounds. After an intended format change,
``python -m hpcbench.doctor.selftest`` updates the digests.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hpcbench.codecs.base import Codec

CODECS = (
    *("none", "zfp:8", "zfp:16", "mpc", "xpk", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8:256", "int4:32"),
    *("int4:32/256", "int3:32/256:nonuniform", "int2:16/256"),
    *("mxfp8:e4m3", "mxfp6:e2m3:even", "mxfp4:rceil", "nvfp4"),
    *("sign:1024", "topk:0.01", "threshold:0.001", "rowsparse:64", "2:4"),
)
"""Tested codecs, one or two per family."""
_FILE = Path(__file__).with_name("digests.json")
_VALUES = 4099


def faults() -> tuple[list[str], str]:
    """Return one line for each faulty codec, and the number of tested codecs."""
    import numpy as np

    from hpcbench.codecs.registry import get_codec

    x, committed, wrong = _values(), json.loads(_FILE.read_text(encoding="utf-8")), []
    for name in CODECS:
        codec = get_codec(name)
        wire = _encode(codec, x)
        if _digest(wire) != committed[name]:
            wrong.append(f"{name}: its bytes differ from the committed ones")
        out = np.empty_like(x)
        codec.decode(wire, out)
        error, bound = float(np.max(np.abs(out - x))), codec.error_bound(x)
        if bound is not None and not error <= bound:
            wrong.append(f"{name}: error {error:g} is above the bound {bound:g}")
    return wrong, f"{len(CODECS)} codecs"


def _values() -> "npt.NDArray[np.float32]":
    """Return values computed from integers and powers of two, which round identically on all platforms."""
    import numpy as np

    state, values = 12345, []
    for _ in range(_VALUES):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        mantissa, exponent = (state >> 40) - 2**23, -(23 + (state >> 32) % 12)
        values.append(mantissa * 2.0**exponent)
    return np.array(values, dtype=np.float32)


def _encode(codec: "Codec", x: "npt.NDArray[np.float32]") -> "npt.NDArray[np.uint8]":
    import numpy as np

    out = np.full(codec.wire_bytes(x.size, x.dtype), 0xA5, dtype=np.uint8)
    return out[: codec.encode(x, out, seed=20)]


def _digest(wire: "npt.NDArray[Any]") -> str:
    return hashlib.sha256(wire.tobytes()).hexdigest()[:16]


def _write() -> None:
    from hpcbench.codecs.registry import get_codec

    digests = {name: _digest(_encode(get_codec(name), _values())) for name in CODECS}
    _FILE.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
