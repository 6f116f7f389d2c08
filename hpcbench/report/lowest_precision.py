"""Lowest number formats of a run's matrix products and messages, in the notation of MLPerf Training's logs."""

from hpcbench.codecs.spec import parse
from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import ChannelTraffic, TrafficTotals

PREFIX = "lowest_numerical_precision_in_"
"""Common prefix of MLPerf's keys ``lowest_numerical_precision_in_comm`` and ``lowest_numerical_precision_in_linear``.
"""
_BITS = {"fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "bfloat16": 16, "float16": 16, "float32": 32}
_NAMES = {"bf16": "bfloat16", "float16": "fp16", "float32": "fp32", "fp8e4m3": "fp8", "fp8e5m2": "fp8"}
"""MLPerf's names of formats. Formats without an MLPerf name, such as ``zfp:8``, keep their own name."""


def find_lowest_precisions(run: RunResult) -> dict[str, str | None]:
    """Return the lowest formats, keyed by MLPerf's keys. A value is None if the log does not state the format."""
    stated = run.log.precisions if run.log else {}
    linear = run.settings.train.precision
    return {
        f"{PREFIX}comm": stated.get("comm") or _find_lowest_of_messages(run),
        f"{PREFIX}linear": stated.get("linear") or (_NAMES.get(linear, linear) if linear else None),
    }


def _find_lowest_of_messages(run: RunResult) -> str | None:
    """Return the format with the fewest bits per value on the wire. Ties are resolved by name."""
    if run.log is None or run.settings.scheme.hides_traffic:
        return None
    channels = run.log.read_event(TrafficTotals).channels or ()
    formats = [each for channel in channels for each in _list_formats(channel, run.settings.train.precision)]
    return min(formats)[1] if formats else None


def _list_formats(channel: ChannelTraffic, precision: str | None) -> list[tuple[float, str]]:
    """Return the bits per value and the name of each format in which the channel sends values."""
    dtype = channel.dtype or precision
    bits = _BITS.get(dtype or "")
    if not channel.message_bytes or bits is None or dtype is None:
        return []
    uncompressed = (float(bits), _NAMES.get(dtype, dtype))
    coded = min(channel.coded_bytes or 0, channel.message_bytes)
    codec = _find_lossy_codec(channel.codec)
    if not coded or codec is None or channel.wire_bytes is None:
        return [uncompressed]
    plain = channel.message_bytes - coded
    encoded = bits * max(channel.wire_bytes - plain, 0) / coded, codec
    return [encoded, *([uncompressed] if plain else [])]


def _find_lossy_codec(name: str | None) -> str | None:
    """Return MLPerf's name of a codec. Return None for lossless and unknown codecs, whose values keep their format."""
    try:
        codec = parse(name or "none")
    except ValueError:
        return None
    if codec.lossless:
        return None
    if codec.family in ("int8", "int4", "int3", "int2"):
        return codec.family
    return _NAMES.get(codec.family, codec.name)
