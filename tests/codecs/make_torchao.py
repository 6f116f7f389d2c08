"""Script that writes torchao.json: digests of torchao's codes and scales, which tests compare with block floats.

    pip install torchao==0.18.0 --target DIR --no-deps
    PYTHONPATH=DIR:. python tests/codecs/make_torchao.py

The tests themselves do not need torchao.
"""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from codec_data import Array, float_sets

FILE = Path(__file__).with_name("torchao.json")
NAMES = [
    f"{element}{rule}"
    for element in ("mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e2m3", "mxfp6:e3m2", "mxfp4")
    for rule in ("", ":ceil", ":even", ":rceil")
]
VALUES = 8192


def inputs() -> dict[str, npt.NDArray[np.float32]]:
    """Return the values for MX formats.

    torchao replaces the scales 2^-127 by 2^-126 or 1, and computes logarithms in float32, which differ for magnitudes
    next to a power of two. The values avoid these scales and magnitudes.
    """
    sets = float_sets(VALUES)
    names = ("bell", "heavy-tail", "smooth", "sparse", "one-sided", "integers", "gradient", "activation", "weight")
    return {name: sets[name] for name in names}


def nvfp4_inputs() -> dict[str, npt.NDArray[np.float32]]:
    """Return pieces of 1024 values whose largest magnitude is 2688, so that the scale of a piece is 1.

    Each block of 16 has a magnitude of at least 0.1, because torchao does not use subnormal block scales.
    """
    sets = float_sets(VALUES)
    pieces = {}
    for name in ("bell", "gradient", "activation"):
        x = sets[name].reshape(-1, 1024)
        x = x / np.abs(x).max(axis=1, keepdims=True) * np.float32(2687)
        x[:, 5], x[:, ::16] = 2688, np.where(np.abs(x[:, ::16]) < 0.1, np.float32(0.1), x[:, ::16])
        pieces[name] = x.ravel().astype(np.float32)
    return pieces


def digest(codes: Array, scales: Array) -> str:
    """Return a digest of one code per value and one scale per block."""
    return hashlib.sha256(codes.astype(np.uint8).tobytes() + scales.astype(np.uint8).tobytes()).hexdigest()[:16]


def _unpack(codes: Any) -> Array:
    pairs: Array = codes.numpy().ravel()
    return np.stack([pairs & 15, pairs >> 4], axis=1).ravel()


def main() -> None:
    """Compute the digests and write them."""
    import torch
    import torchao
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    kinds: dict[str, Any] = {
        "mxfp8:e4m3": torch.float8_e4m3fn,
        "mxfp8:e5m2": torch.float8_e5m2,
        "mxfp6:e2m3": "fp6_e2m3",
        "mxfp6:e3m2": "fp6_e3m2",
        "mxfp4": torch.float4_e2m1fn_x2,
    }
    digests: dict[str, dict[str, str]] = {}
    for name in NAMES:
        element, _, rule = name.rpartition(":") if name.endswith(("ceil", "even")) else (name, "", "floor")
        digests[name] = {}
        for label, x in inputs().items():
            scales, codes = to_mx(torch.from_numpy(x), kinds[element], 32, ScaleCalculationMode(rule))
            short = _unpack(codes) if element == "mxfp4" else codes.view(torch.uint8).numpy().ravel()
            digests[name][label] = digest(short, scales.view(torch.uint8).numpy().ravel())
    digests["nvfp4"] = {}
    for label, x in nvfp4_inputs().items():
        scales, codes = nvfp4_quantize(torch.from_numpy(x).reshape(1, -1), 16, torch.tensor(1.0))
        digests["nvfp4"][label] = digest(_unpack(codes), scales.view(torch.uint8).numpy().ravel())
    FILE.write_text(json.dumps({"torchao": torchao.__version__, "digests": digests}, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
