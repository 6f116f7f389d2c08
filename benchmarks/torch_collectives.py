"""PyTorch's collectives over gloo: its own, interposed, and with codecs, in one run with rotated order.

    torchrun --nproc-per-node 4 benchmarks/torch_collectives.py [--bytes 65536 1048576 16777216] [--repeats 7]

Rank 0 prints the median of the slowest rank's microseconds, and its ratio to plain gloo. DDP's hooks are compared
end to end, not here: they serve DDP alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.torch.intercept import Interception

SMALL_S = 0.2
"""Seconds that the calls of one sample take, about."""


def asked(codec: str | None) -> Interposition:
    """Settings under which all sums and gathers have a codec; None for kernels that redispatch everything."""
    algorithm, default = ("native", "none") if codec is None else ("encoded", codec)
    scheme = NamedScheme.model_validate({"name": "bench", "algorithm": algorithm, "default": default})
    return Interposition(scheme=scheme, groups=Groups(min_bytes=0, lossy=["parameters"]), out="nowhere")


MODES: dict[str, Interposition | None] = {
    "plain gloo": None,
    "interposed": asked(None),
    "no codec": asked("none"),
    "bf16": asked("bf16"),
    "int8": asked("int8"),
    "zfp:8": asked("zfp:8"),
    "xpk": asked("xpk"),
}


def operations(nbytes: int) -> dict[str, Callable[[], None]]:
    """The calls on vectors of a size."""
    ranks = dist.get_world_size()
    whole, part = torch.randn(nbytes // 4), torch.randn(nbytes // 4 // ranks)

    def all_reduce() -> None:
        dist.all_reduce(whole, dist.ReduceOp.SUM)
        whole.mul_(1 / ranks)

    return {
        "all-reduce": all_reduce,
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, part),
    }


def seconds(call: Callable[[], None], count: int) -> float:
    """Seconds of a call on the slowest rank."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    taken = torch.tensor([(time.perf_counter() - begin) / count])
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def measure(call: Callable[[], None], repeats: int) -> dict[str, float]:
    """Median seconds by mode."""
    installed = {name: Interception(mode) for name, mode in MODES.items() if mode is not None}
    count = max(1, min(50, int(SMALL_S / max(seconds(call, 2), 1e-6))))
    found: dict[str, list[float]] = {name: [] for name in MODES}
    names = list(MODES)
    for repeat in range(repeats + 1):
        shift = repeat % len(names)
        for name in names[shift:] + names[:shift]:
            interception = installed.get(name)
            if interception is not None:
                interception.install()
            taken = seconds(call, count)
            if interception is not None:
                interception.remove()
            if repeat:  # the first one makes groups and plans
                found[name].append(taken)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=[65536, 1 << 20, 16 << 20])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print(f"{'':16}{'bytes':>10}", *(f"{name:>18}" for name in MODES))
    for nbytes in options.bytes:
        for name, call in operations(nbytes).items():
            times = measure(call, options.repeats)
            plain = times["plain gloo"]
            if dist.get_rank() == 0:
                cells = (f"{t * 1e6:9.0f} ({plain / t:5.2f}x)" for t in times.values())
                print(f"{name:16}{nbytes:>10}", *(f"{cell:>18}" for cell in cells), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
