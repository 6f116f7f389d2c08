"""Parser of codec names. The parser needs neither NumPy nor the kernels, so login nodes can validate studies."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points

ENTRY_POINTS = "hpcbench.codecs"
"""Entry-point group for codecs from other packages: ``family = package:make``.

The function receives the text after the colon of the codec's name, or an empty string.
"""

ZFP_RATES = range(4, 33)
"""Valid bits per value of ``zfp:R``."""
MPC_DIMS = range(1, 33)
"""Valid strides of ``mpc:D``."""
BLOCKS = (32, 64, 128, 256, 512, 1024)
"""Valid block sizes of ``int8:B``, ``int4:B`` and ``sign:B``."""
GROUP_BLOCKS = (16, 32)
"""Valid block sizes of ``int4:B/256``, ``int3:B/256`` and ``int2:B/256``."""
GROUP = 256
"""Number of values that share a maximum in codecs with two-level scales."""
MX_ELEMENTS = {"mxfp8": ("e4m3", "e5m2"), "mxfp6": ("e2m3", "e3m2"), "mxfp4": ("e2m1",)}
"""Element types of the MX formats. The first type is the default."""
MX_RULES = ("floor", "ceil", "even", "rceil")
"""Rules for the block scales of MX formats. The first rule is the default."""
ROTATIONS = (16, 32, 64, 128, 256, 512, 1024)
"""Valid rotation sizes: the number of values that are rotated together."""
ROTATED = ("int8", "int4", "int3", "int2", "sign", "fp8e4m3", "fp8e5m2", *MX_ELEMENTS, "nvfp4")
"""Codec families that support rotation."""


@dataclass(frozen=True)
class CodecSpec:
    """The parts of a codec's name."""

    family: str
    """Family name: ``zfp``, ``mpc``, ..."""
    parameter: str
    """Text after the colon in canonical form. Without a colon, the default is used."""
    name: str
    """Canonical name. For example, the canonical name of ``mpc:1`` is ``mpc``."""
    lossless: bool | None
    """Whether decoding restores every bit, or None for codecs of other packages, which are not loaded here."""
    on_gpu: bool
    """Whether the codec has GPU kernels or needs no kernels. The flag is False for codecs of other packages."""
    rotation: int = 0
    """Number of values that are rotated together before encoding. 0 disables rotation."""
    signs: bool = False
    """Whether random sign flips precede the rotation."""

    @property
    def takes_fp64(self) -> bool | None:
        """Whether the codec supports float64.

        Lossy codecs do not support float64, because they compute in float32. The value is None if support is unknown.
        """
        return self.lossless


@dataclass(frozen=True)
class Family:
    """A codec family and its parameter."""

    parameter: Callable[[str], str | None]
    """Function that returns the canonical form of a parameter, or None if the parameter is invalid."""
    forms: str
    """Valid forms of the parameter, for error messages."""
    lossless: bool = False
    on_gpu: bool = True
    """Whether the codec has GPU kernels or needs no kernels."""
    default: str | None = ""
    """Default parameter. If None, the parameter is required."""
    bare: bool = False
    """Whether the canonical name omits the default parameter."""


def _none(text: str) -> str | None:
    return "" if text == "" else None


def _integer(allowed: range | tuple[int, ...]) -> Callable[[str], str | None]:
    def parameter(text: str) -> str | None:
        return str(int(text)) if re.fullmatch("[0-9]{1,9}", text) and int(text) in allowed else None

    return parameter


def _block(text: str) -> str | None:
    block, _, how = text.partition(":")
    written = _integer(BLOCKS)(block)
    if written is None or (how not in ("stochastic", "correlated") and text != block):
        return None
    return f"{written}:{how}" if how else written


def _grouped(text: str, *, levels: bool = True) -> str | None:
    allowed = "(:nonuniform)?" if levels else ""
    match = re.fullmatch(f"([0-9]{{1,9}})/{GROUP}({allowed}(:stochastic|:correlated)?)", text)
    return f"{int(match[1])}/{GROUP}{match[2]}" if match and int(match[1]) in GROUP_BLOCKS else None


def _mx(family: str) -> Callable[[str], str | None]:
    def parameter(text: str) -> str | None:
        element, _, rule = text.partition(":")
        if element not in MX_ELEMENTS[family] or (rule not in MX_RULES and text != element):
            return None
        return text.removesuffix(":floor")

    return parameter


def _number(text: str, most: float) -> str | None:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        return None
    value = float(text)
    return f"{value:g}" if 0 < value <= most and float(f"{value:g}") == value else None


_BLOCKS = "a power of two from 32 to 1024"
FAMILIES = {
    "none": Family(_none, "none", lossless=True),
    "zfp": Family(_integer(ZFP_RATES), "zfp:R with R from 4 to 32", default=None),
    "mpc": Family(_integer(MPC_DIMS), "mpc, mpc:D with D from 1 to 32", lossless=True, default="1", bare=True),
    "xpk": Family(_none, "xpk", lossless=True),
    "fp16": Family(_none, "fp16"),
    "bf16": Family(_none, "bf16"),
    "fp8e4m3": Family(_none, "fp8e4m3"),
    "fp8e5m2": Family(_none, "fp8e5m2"),
    "int8": Family(_block, f"int8:B, int8:B:stochastic and int8:B:correlated with B {_BLOCKS}", default="256"),
    "int4": Family(
        lambda text: _block(text) or _grouped(text),
        "int4:B, int4:B:stochastic and int4:B:correlated likewise, int4:B/256 with B 16 or 32, optionally followed by "
        ":nonuniform, and then by :stochastic or :correlated",
        default="32",
    ),
    "int3": Family(_grouped, "int3:B/256 likewise", default="32/256"),
    "int2": Family(
        lambda text: _grouped(text, levels=False),
        "int2:B/256, int2:B/256:stochastic and int2:B/256:correlated",
        default="16/256",
    ),
    "mxfp8": Family(
        _mx("mxfp8"), "mxfp8:e4m3 and mxfp8:e5m2, optionally followed by :ceil, :even or :rceil", default="e4m3"
    ),
    "mxfp6": Family(_mx("mxfp6"), "mxfp6:e2m3 and mxfp6:e3m2 likewise", default="e2m3"),
    "mxfp4": Family(
        lambda text: text if text in MX_RULES else None,
        "mxfp4, mxfp4:ceil, mxfp4:even and mxfp4:rceil",
        default="floor",
        bare=True,
    ),
    "nvfp4": Family(_none, "nvfp4"),
    "sign": Family(_integer(BLOCKS), "sign:B likewise", default="1024"),
    "topk": Family(lambda text: _number(text, 1.0), "topk:F with a fraction 0 < F <= 1", default=None),
    "threshold": Family(lambda text: _number(text, 3e38), "threshold:T with T > 0", default=None),
    "rowsparse": Family(
        _integer(range(1, 2**20 + 1)), "rowsparse:W with W values per row", lossless=True, default=None
    ),
    "2:4": Family(_none, "2:4"),
}
_ROTATION = "rotateN+CODEC or hadamardN+CODEC with N a power of two from 16 to 1024"
FORMS = ", ".join((*(family.forms for family in FAMILIES.values()), _ROTATION))


def parse(name: str) -> CodecSpec:
    """Split a codec's name into its parts.

    Parameters
    ----------
    name
        Name of a family, usually followed by a colon and a parameter: ``none``, ``zfp:8``, ``int8:256:stochastic``. A
        rotation may precede a family of `ROTATED`: ``rotate64+int4:32``.

    Raises
    ------
    ValueError
        The codec does not exist or does not accept this parameter. The message lists the valid forms.
    """
    if isinstance(name, str) and re.match("(rotate|hadamard)[0-9]*[+]", name):
        return _parse_rotated(name)
    family, parameter = split(name) if isinstance(name, str) else ("", "")
    if family in FAMILIES:
        ours = FAMILIES[family]
        text = ours.default if name == family else parameter
        written = None if text is None else ours.parameter(text)
        if written is None:
            raise ValueError(f"unknown codec {name[:40]!r}: use {ours.forms}")
        short = written == "" or (ours.bare and written == ours.default)
        return CodecSpec(family, written, family if short else f"{family}:{written}", ours.lossless, ours.on_gpu)
    if plugin(family):
        return CodecSpec(family, parameter, name, lossless=None, on_gpu=False)
    raise ValueError(f"unknown codec {str(name)[:40]!r}: use one of {FORMS}")


def _parse_rotated(name: str) -> CodecSpec:
    stage, _, codec = name.partition("+")
    kind = stage.rstrip("0123456789")
    size = stage.removeprefix(kind)
    if not size or int(size) not in ROTATIONS or split(codec)[0] not in ROTATED:
        raise ValueError(f"unknown codec {name[:40]!r}: use {_ROTATION} and CODEC one of {', '.join(ROTATED)}")
    inner = parse(codec)
    return replace(inner, name=f"{kind}{int(size)}+{inner.name}", rotation=int(size), signs=kind == "rotate")


def plugin(family: str) -> EntryPoint | None:
    """Return the entry point of a plugin family, or None if it is not installed."""
    return next(iter(entry_points(group=ENTRY_POINTS, name=family)), None)


def split(name: str) -> tuple[str, str]:
    """Return the family and parameter of a codec name that has no rotation prefix. ``2:4`` is a family."""
    if name == "2:4":
        return name, ""
    family, _, parameter = name.partition(":")
    return family, parameter
