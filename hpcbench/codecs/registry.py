"""Lookup of codecs by the names used in studies."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import cast

from hpcbench.codecs.base import Codec
from hpcbench.codecs.block_float import Mx, Nvfp4
from hpcbench.codecs.cast import Cast
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.grouped import Grouped
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.library import Kernels, kernels
from hpcbench.codecs.mpc import MpcCodec
from hpcbench.codecs.quant import ROUNDINGS, Quant
from hpcbench.codecs.rotated import Rotated
from hpcbench.codecs.sign import Sign
from hpcbench.codecs.sparse import Pick, RowSparse, Threshold, TopK
from hpcbench.codecs.spec import parse, plugin
from hpcbench.codecs.xpk import XpkCodec
from hpcbench.codecs.zfp import ZfpCodec


def _quant(bits: int) -> Callable[[str, Kernels | None], Codec]:
    def make(parameter: str, build: Kernels | None) -> Codec:
        size, *options = parameter.split(":")
        rounding = options[-1] if options and options[-1] in ROUNDINGS else "nearest"
        block, _, group = size.partition("/")
        if group:
            return Grouped(bits, int(block), nonuniform="nonuniform" in options, rounding=rounding, build=build)
        return Quant(bits, int(block), rounding, build)

    return make


def _mx(family: str) -> Callable[[str, Kernels | None], Codec]:
    def make(parameter: str, build: Kernels | None) -> Codec:
        element, _, rule = parameter.partition(":")
        return Mx(family, element, rule or "floor", build)

    return make


_MAKERS: dict[str, Callable[[str, Kernels | None], Codec]] = {
    "none": lambda parameter, build: Identity(),
    "zfp": lambda parameter, build: ZfpCodec(int(parameter), build),
    "mpc": lambda parameter, build: MpcCodec(int(parameter), build),
    "xpk": lambda parameter, build: XpkCodec(build),
    "int8": _quant(8),
    "int4": _quant(4),
    "int3": _quant(3),
    "int2": _quant(2),
    "mxfp8": _mx("mxfp8"),
    "mxfp6": _mx("mxfp6"),
    "mxfp4": lambda parameter, build: Mx("mxfp4", "e2m1", parameter, build),
    "nvfp4": lambda parameter, build: Nvfp4(build),
    "sign": lambda parameter, build: Sign(int(parameter), build),
    "topk": lambda parameter, build: TopK(float(parameter), build),
    "threshold": lambda parameter, build: Threshold(float(parameter), build),
    "rowsparse": lambda parameter, build: RowSparse(int(parameter), build),
    "2:4": lambda parameter, build: Pick(build),
}
for _family in ("fp16", "bf16", "fp8e4m3", "fp8e5m2"):
    _MAKERS[_family] = lambda parameter, build, family=_family: Cast(family, build)  # type: ignore[misc]


def get_codec(name: str, build: Kernels | None = None) -> Codec:
    """Return the codec with a given name, either from hpcbench or from an installed plugin package.

    Parameters
    ----------
    name
        Name as used in a study.
    build
        Kernels to use. If None, use the fastest build that this machine supports.

    Raises
    ------
    ValueError
        The codec does not exist or does not accept this parameter.
    ImportError
        The codec requires the compiled kernels, which are missing.
    """
    spec = parse(name)
    if spec.family in _MAKERS:
        codec = _MAKERS[spec.family](spec.parameter, build)
        return Rotated(cast(Compiled, codec), spec.rotation, signs=spec.signs, build=build) if spec.rotation else codec
    make: Callable[[str], Codec] = cast(EntryPoint, plugin(spec.family)).load()
    return make(spec.parameter)


def instruction_set() -> str:
    """Instruction set of the kernels in use: ``avx512``, ``avx2``, ``sse2`` or ``generic``."""
    return kernels().instruction_set
