"""Measure speed, ratio and error of the codecs on a GPU, compared with other compressors on the same data.

    python benchmarks/codecs_gpu.py [--mib N] [--repeats K] [--data NAME|FILE.npy] [--zfp LIBZFP.so] [--json FILE]
                                    [--tiny]

Speeds in GB/s count uncompressed float32 bytes. Calls are timed with CUDA events, after warm-up calls. The median is
followed by the best value. "of copy" is the median bandwidth of a call (bytes that it must read and write) divided by
the bandwidth of a copy. "fused" decodes, adds and encodes in one kernel. "3 kernels" is the time of three separate
kernels divided by that of the fused kernel. "as fp16" and "as bf16" are not codecs, but the casts that precede a codec.
CuPy's cast, PyTorch, nvCOMP and a libzfp with CUDA (--zfp) each have a row, which states if they are missing or fail.
The exit status is 2 without a GPU.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from gpu_peers import Peer, cupy_peers, cuzfp_peers, nvcomp_peers, torch_peers
from provenance import head, provenance
from rich import box
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.codecs.convert import add, convert
from hpcbench.codecs.cuda import BFloat16, CudaCodec
from hpcbench.codecs.device import cuda
from hpcbench.codecs.registry import get_codec

Values = npt.NDArray[np.float32]
CODECS = ("fp16", "bf16", "fp8e4m3", "int8:256", "int4:32", "int4:32/256", "rotate64+int4:32/256", "mxfp8:e4m3")
CODECS += ("mxfp4", "nvfp4", "int2:16/256", "sign:1024", "2:4", "zfp:4", "zfp:8", "zfp:16", "zfp:24", "mpc", "xpk")
CODECS += ("topk:0.01", "threshold:0.003", "rowsparse:1024")
ZFP_RATES = (4, 8, 16, 24)
DATA: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "gauss": lambda r, n: r.standard_normal(n, dtype=np.float32) * np.float32(1e-3),
    "heavy-tail": lambda r, n: (r.standard_t(2, n) * 1e-4).astype(np.float32),
    "smooth": lambda r, n: (np.cumsum(r.standard_normal(n, dtype=np.float32)) * 1e-3).astype(np.float32),
    "sparse": lambda r, n: r.standard_normal(n, dtype=np.float32) * (r.random(n, dtype=np.float32) < 0.1),
}
WARM = 3
PIECE = 1 << 20
"""Number of values per piece in the computation of errors. Float64 copies of all values would not fit in the cache."""
GPU_PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "nvidia-nvcomp-cu13", "nvidia-nvcomp-cu12")


@dataclass
class Speed:
    """Times of one kind of call."""

    median_seconds: float
    best_seconds: float
    gb_per_s: float
    best_gb_per_s: float
    of_copy: float
    """Bandwidth as a fraction of the copy's bandwidth."""


@dataclass
class Row:
    """A codec of hpcbench, or another compressor."""

    name: str
    ratio: float
    rmse: float
    """RMS error of the decoded values, relative to the RMS of the values."""
    speeds: dict[str, Speed]
    lack: str = ""
    """Reason why the codec was not measured."""
    three_kernels: float | None = None
    """Time of separate decode, add and encode calls, divided by the time of the fused call."""


class Bench:
    """Timer of calls on the current stream."""

    def __init__(self, cupy: Any, x: Values, repeats: int) -> None:
        self.cupy, self.repeats, self.host = cupy, repeats, x
        self.x = cupy.asarray(x)
        self.rms = float(np.sqrt(np.mean(x.astype(np.float64) ** 2)))
        out = cupy.empty_like(self.x)
        self.copy = 2 * x.nbytes / median(self.seconds(lambda: cupy.copyto(out, self.x)))

    def seconds(self, call: Callable[[], Any]) -> list[float]:
        """Return the time of each call in seconds, after some warm-up calls."""
        events = [(self.cupy.cuda.Event(), self.cupy.cuda.Event()) for _ in range(self.repeats)]
        for _ in range(WARM):
            call()
        for begin, end in events:
            begin.record()
            call()
            end.record()
        self.cupy.cuda.Device().synchronize()
        return [self.cupy.cuda.get_elapsed_time(begin, end) / 1e3 for begin, end in events]

    def speed(self, call: Callable[[], Any], moved: int) -> Speed:
        """Return the bandwidth of a call that reads and writes `moved` bytes."""
        times = self.seconds(call)
        middle, best = median(times), min(times)
        size = self.host.nbytes / 1e9
        return Speed(middle, best, size / middle, size / best, moved / middle / self.copy)

    def error(self, decoded: Any) -> float:
        """Return the RMS error of decoded values, relative to the RMS of the values."""
        decoded = self.cupy.asarray(decoded).view(self.cupy.float32)[: self.x.size]
        decoded = self.cupy.asnumpy(decoded)  # CuPy's kernels flush subnormals to zero.
        square = 0.0
        for k in range(0, decoded.size, PIECE):
            lack = decoded[k : k + PIECE].astype(np.float64) - self.host[k : k + PIECE]
            square += float(lack @ lack)
        return math.sqrt(square / decoded.size) / self.rms

    def row(self, peer: Peer, three: Callable[[], Any] | None = None) -> Row:
        """Measure a codec or another compressor."""
        size, wire = self.host.nbytes, peer.wire_bytes
        speeds = {
            "encode": self.speed(peer.encode, size + wire),
            "decode": self.speed(peer.decode, wire + size),
        }
        rmse = self.error(peer.result())
        if peer.add:
            speeds["add"] = self.speed(peer.add, wire + 2 * size)
        ratio = None
        if peer.fused:
            speeds["fused"] = self.speed(peer.fused, 2 * wire + size)
            if three:
                ratio = median(self.seconds(three)) / speeds["fused"].median_seconds
        return Row(peer.name, size / wire, rmse, speeds, three_kernels=ratio)


def ours(bench: Bench, name: str) -> Row:
    """Measure a codec of hpcbench."""
    cupy, x, device = bench.cupy, bench.x, cuda()
    stream = device.stream(None, x)
    codec = CudaCodec(get_codec(name), device)
    room = codec.wire_bytes(x.size, np.dtype(np.float32))
    wire, other = cupy.empty(room, cupy.uint8), cupy.empty(room, cupy.uint8)
    used = int(codec.encode(x, wire))
    coded = wire[:used]
    out, total, middle = cupy.empty_like(x), cupy.zeros_like(x), cupy.empty_like(x)
    sums, terms = (device.view(name, a, stream) for a in (middle, x))

    def three() -> None:
        codec.decode(coded, middle)
        add(device, sums, terms, stream)
        codec.encode(middle, other)

    peer = Peer(
        name,
        used,
        lambda: codec.encode(x, wire),
        lambda: codec.decode(coded, out),
        lambda: out,
        lambda: codec.decode(coded, total, accumulate=True),
        lambda: codec.decode_add_encode(coded, x, other),
    )
    return bench.row(peer, three)


def measure_rounding(bench: Bench) -> Iterator[Row]:
    """Measure the cast of values to 16 bits and back, without a codec."""
    cupy, x, device = bench.cupy, bench.x, cuda()
    stream = device.stream(None, x)
    halves, out, total = cupy.empty(x.size, cupy.uint16), cupy.empty_like(x), cupy.zeros_like(x)
    for name, wire in (("as fp16", halves.view(cupy.float16)), ("as bf16", BFloat16(halves))):
        sent, values, back, sums = (device.view(name, a, stream) for a in (wire, x, out, total))
        yield bench.row(
            Peer(
                name,
                halves.nbytes,
                lambda sent=sent, values=values: convert(device, sent, values, stream),
                lambda back=back, sent=sent: convert(device, back, sent, stream),
                lambda: out,
                lambda sums=sums, sent=sent: convert(device, sums, sent, stream, accumulate=True),
            )
        )


def peers(bench: Bench, zfp: Path | None) -> Iterator[Row]:
    """Measure the installed peers. Also return the reasons why other peers were not measured."""
    stream = bench.cupy.cuda.get_current_stream().ptr
    kinds: dict[str, Callable[[], Iterator[Peer]]] = {
        "CuPy": lambda: cupy_peers(bench.x),
        "PyTorch": lambda: torch_peers(bench.x),
        "nvCOMP": lambda: nvcomp_peers(bench.x, stream),
        "cuZFP": lambda: cuzfp_peers(bench.x, zfp, ZFP_RATES),
    }
    for kind, make in kinds.items():
        try:
            for peer in make():
                yield bench.row(peer)
        except ImportError:
            yield Row(kind, 0, 0, {}, "not installed")
        except Exception as error:  # The failure of one peer must not lose the table.
            yield Row(kind, 0, 0, {}, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:80])


def table(rows: list[Row], title: str) -> Table:
    """Make a table of the rows."""
    shown = Table(title=title, box=box.ASCII)
    for heading in ("codec", "ratio", "rmse / rms"):
        shown.add_column(heading, justify="left" if heading == "codec" else "right")
    kinds = ("encode", "decode", "add", "fused")
    for kind in kinds:
        shown.add_column(f"{kind} GB/s", justify="right")
        shown.add_column("of copy", justify="right")
    shown.add_column("3 kernels", justify="right")
    for row in rows:
        if row.lack:
            shown.add_row(f"{row.name}: {row.lack}")
            continue
        cells = [row.name, f"{row.ratio:.3f}", "exact" if row.rmse == 0 else f"{row.rmse:.1e}"]
        for kind in kinds:
            speed = row.speeds.get(kind)
            cells += (
                [f"{speed.gb_per_s:.0f} ({speed.best_gb_per_s:.0f})", f"{speed.of_copy:.0%}"] if speed else ["", ""]
            )
        shown.add_row(*cells, f"{row.three_kernels:.2f}x" if row.three_kernels else "")
    return shown


def values(name: str, n: int) -> Values:
    """Return generated values or values from a file, repeated if there are too few."""
    if name in DATA:
        return np.ascontiguousarray(DATA[name](np.random.default_rng(1), n), dtype=np.float32)
    return np.resize(np.load(name).astype(np.float32).ravel(), n)


def main() -> int:
    """Read the options, measure and print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Codecs on a GPU compared with their peers.")
    parser.add_argument("--mib", type=int, default=512, help="MiB of float32 (default 512, more than a cache holds)")
    parser.add_argument("--repeats", type=int, default=20, help="timed calls of each kind (default 20)")
    parser.add_argument("--data", default="gauss", help=f"{', '.join(DATA)}, or a .npy file (default gauss)")
    parser.add_argument("--codecs", nargs="+", default=CODECS, help="names as in a study")
    parser.add_argument("--zfp", type=Path, default=None, help="libzfp.so with CUDA, to compare with")
    parser.add_argument("--json", type=Path, default=None, help="file for the numbers")
    arguments = parse(parser, mib=1, repeats=2)
    if arguments.mib < 1 or arguments.repeats < 1:
        parser.error("--mib and --repeats must be at least 1")
    if arguments.data not in DATA and not Path(arguments.data).is_file():
        parser.error(f"--data {arguments.data}: neither one of {', '.join(DATA)} nor a file")
    try:
        cuda()
    except (ImportError, RuntimeError) as error:
        print(f"codecs_gpu.py: {error}", file=sys.stderr)
        return 2
    import cupy

    print(*head(Path(__file__), GPU_PACKAGES), sep="\n", flush=True)
    n = arguments.mib * 2**18
    bench = Bench(cupy, values(arguments.data, n), arguments.repeats)
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    console = Console(width=None if sys.stdout.isatty() else 200)
    rows = [*measure_rounding(bench), *(ours(bench, name) for name in arguments.codecs)]
    rows += peers(bench, arguments.zfp)
    title = f"{arguments.data}, {arguments.mib} MiB float32, {gpu}, copy {bench.copy / 1e9:.0f} GB/s read and written"
    console.print(table(rows, title))
    if arguments.json:
        about = {
            "provenance": provenance(Path(__file__), GPU_PACKAGES),
            "gpu": gpu,
            "cupy": cupy.__version__,
            "cuda": cupy.cuda.runtime.runtimeGetVersion(),
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "data": arguments.data,
            "mib": arguments.mib,
            "repeats": arguments.repeats,
            "copy_gb_per_s": bench.copy / 1e9,
        }
        arguments.json.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
