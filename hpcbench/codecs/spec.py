"""Names of codecs, read without NumPy or the kernels: a login node checks a study with this."""

import re
from dataclasses import dataclass

ZFP_RATES = range(4, 33)
"""Bits a value that ``zfp:R`` may have."""
MPC_DIMS = range(1, 33)
"""Strides that ``mpc:D`` may have."""

KNOWN = "none, zfp:R with R from 4 to 32, mpc, mpc:D with D from 1 to 32"


@dataclass(frozen=True)
class CodecSpec:
    """A codec's name, taken apart."""

    family: str
    """``none``, ``zfp`` or ``mpc``."""
    parameter: int | None
    """Rate in bits a value of ``zfp``, stride in words of ``mpc``."""
    name: str
    """The one way to write it: ``mpc:1`` is ``mpc``."""
    lossless: bool


def parse(name: str) -> CodecSpec:
    """Take a codec's name apart.

    Parameters
    ----------
    name
        ``none``, ``zfp:R``, ``mpc`` or ``mpc:D``.

    Raises
    ------
    ValueError
        No such codec, or a parameter that it does not have; one line that names the known forms.
    """
    match = re.fullmatch(r"(none|zfp|mpc)(?::([0-9]{1,3}))?", name) if isinstance(name, str) else None
    if match:
        family, parameter = match[1], None if match[2] is None else int(match[2])
        if family == "none" and parameter is None:
            return CodecSpec(family, None, family, lossless=True)
        if family == "zfp" and parameter in ZFP_RATES:
            return CodecSpec(family, parameter, f"zfp:{parameter}", lossless=False)
        if family == "mpc" and (parameter is None or parameter in MPC_DIMS):
            dim = parameter or 1
            return CodecSpec(family, dim, "mpc" if dim == 1 else f"mpc:{dim}", lossless=True)
    raise ValueError(f"unknown codec {name!r}: known are {KNOWN}")
