"""Speed, ratio and error of the codecs on one core, beside other compressors, on the same data in the same run.

    python benchmarks/codecs_cpu.py [--values N] [--repeats K] [--data NAME] [--isa NAME]

GB/s count uncompressed bytes; the best of K calls is shown. zfpy is the reference of ZFP; zstandard, lz4 and blosc2
are shown where they are installed.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zfpy
from rich import box
from rich.console import Console
from rich.table import Table

from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import INSTRUCTION_SETS, Kernels, kernels
from hpcbench.codecs.mpc import Mpc
from hpcbench.codecs.zfp import Zfp

Values = npt.NDArray[np.float32]
ZFP_RATES = (4, 8, 12, 16, 24)
DATA: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "gauss": lambda r, n: r.standard_normal(n) * 1e-3,
    "heavy-tail": lambda r, n: r.standard_t(2, n) * 1e-4,
    "smooth": lambda r, n: np.cumsum(r.standard_normal(n)) * 1e-3,
    "sparse": lambda r, n: r.standard_normal(n) * (r.random(n) < 0.1),
}


@dataclass
class Row:
    """One codec's measurement."""

    name: str
    encode: Callable[[], Any]
    decode: Callable[[], Any]
    wire_bytes: int
    result: Callable[[], Values]
    reference: str = ""
    """Name of the row whose speed this one is compared with."""


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(rows: list[Row], repeats: int) -> list[tuple[float, float]]:
    """Seconds of each row's fastest encode and decode, taken in turns so that a slow moment strikes all alike."""
    times = [(float("inf"), float("inf"))] * len(rows)
    for _ in range(repeats):
        for k, row in enumerate(rows):
            times[k] = min(times[k][0], seconds(row.encode)), min(times[k][1], seconds(row.decode))
    return times


def ours(codec: Codec, x: Values, label: str, reference: str) -> Row:
    wire = np.zeros(codec.wire_bytes(x.size, x.dtype), dtype=np.uint8)
    used = codec.encode(x, wire)
    out = np.zeros_like(x)
    return Row(
        label, lambda: codec.encode(x, wire), lambda: codec.decode(wire[:used], out), used, lambda: out, reference
    )


def of_zfpy(x: Values, rate: int) -> Row:
    kind = zfpy.dtype_to_ztype(x.dtype)
    stream = zfpy.compress_numpy(x, rate=rate, write_header=False)

    def decode() -> Values:
        values: Values = zfpy._decompress(stream, kind, x.shape, rate=rate)
        return values

    return Row(
        f"zfpy {rate}", lambda: zfpy.compress_numpy(x, rate=rate, write_header=False), decode, len(stream), decode
    )


def lossless_peers(x: Values) -> Iterator[Row]:
    def row(name: str, encode: Callable[[], bytes], decode: Callable[[bytes], bytes]) -> Row:
        stream = encode()
        return Row(name, encode, lambda: decode(stream), len(stream), lambda: np.frombuffer(decode(stream), np.float32))

    data = x.tobytes()
    try:
        import zstandard

        packer, unpacker = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
        yield row("zstd 1", lambda: packer.compress(data), unpacker.decompress)
    except ImportError:
        pass
    try:
        import lz4.frame

        yield row("lz4", lambda: lz4.frame.compress(data), lz4.frame.decompress)
    except ImportError:
        pass
    try:
        import blosc2

        def blosc(codec: Any) -> bytes:
            options = {"clevel": 1, "typesize": 4, "filters": [blosc2.Filter.BITSHUFFLE], "filters_meta": [0]}
            packed: bytes = blosc2.compress2(x, codec=codec, nthreads=1, **options)
            return packed

        for name in ("LZ4", "ZSTD"):
            codec = getattr(blosc2.Codec, name)
            label = f"blosc2 bitshuffle+{name.lower()}"
            yield row(label, lambda codec=codec: blosc(codec), lambda stream: blosc2.decompress2(stream, nthreads=1))
    except ImportError:
        pass


def rows(x: Values, build: Kernels) -> Iterator[Row]:
    """Everything that is measured; a row's reference comes before it."""
    copy = np.zeros_like(x)
    yield Row("memcpy", lambda: np.copyto(copy, x), lambda: np.copyto(copy, x), x.nbytes, lambda: x)
    half = x.astype(np.float16)
    yield Row(
        "cast fp16 (numpy)",
        lambda: np.copyto(half, x, casting="same_kind"),
        lambda: np.copyto(copy, half),
        half.nbytes,
        lambda: half.astype(np.float32),
    )
    for rate in ZFP_RATES:
        yield of_zfpy(x, rate)
        yield ours(Zfp(rate, build), x, f"zfp:{rate}", f"zfpy {rate}")
    peers = list(lossless_peers(x))
    yield from peers
    rival = next((peer.name for peer in peers if "bitshuffle+lz4" in peer.name), "memcpy")
    yield ours(Mpc(1, build), x, "mpc", rival)


def main() -> None:
    parser = argparse.ArgumentParser(description="Codecs on one core beside their peers.")
    parser.add_argument("--values", type=int, default=1 << 22, help="float32 values (default 4 Mi = 16 MiB)")
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the fastest counts (default 5)")
    parser.add_argument("--data", choices=[*DATA, "all"], default="gauss")
    parser.add_argument("--isa", choices=INSTRUCTION_SETS, default=None, help="build of the kernels (default: fastest)")
    arguments = parser.parse_args()
    if arguments.values < 1 or arguments.repeats < 1:
        parser.error("--values and --repeats must be at least 1")
    try:
        build = kernels(arguments.isa)
    except ValueError as error:
        parser.error(str(error))

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for label in DATA if arguments.data == "all" else [arguments.data]:
        x = DATA[label](np.random.default_rng(1), arguments.values).astype(np.float32)
        rms = float(np.sqrt(np.mean(x.astype(np.float64) ** 2)))
        table = Table(
            title=f"{label}, {x.nbytes / 2**20:.1f} MiB float32, one core, kernels {build.instruction_set}",
            box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII,
        )
        for heading in ("codec", "ratio", "encode GB/s", "decode GB/s", "rmse / rms", "encode, decode vs"):
            table.add_column(heading, justify="left" if heading == "codec" else "right")
        speeds: dict[str, tuple[float, float]] = {}
        measured = list(rows(x, build))
        for row, times in zip(measured, measure(measured, arguments.repeats), strict=True):
            encode, decode = (x.nbytes / 1e9 / best for best in times)
            speeds[row.name] = encode, decode
            rmse = float(np.sqrt(np.mean((row.result().astype(np.float64) - x) ** 2))) / rms
            versus = ""
            if row.reference:
                other = speeds[row.reference]
                versus = f"{encode / other[0]:.1f}x, {decode / other[1]:.1f}x {row.reference}"
            shown = "exact" if rmse == 0 else f"{rmse:.1e}"
            ratio = f"{x.nbytes / row.wire_bytes:.3f}"
            table.add_row(row.name, ratio, f"{encode:.2f}", f"{decode:.2f}", shown, versus)
        console.print(table)


if __name__ == "__main__":
    main()
