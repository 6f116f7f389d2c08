"""Time of transformer layers on this machine, measured as in a training step: in sequence, with uncached weights.

A layer takes longer than its matrix products, because of norms, activations, attention, memory for saved values, and
operator launches from Python. `hpcbench predict` uses the ratio of the two times. One rank's part of a tensor-parallel
layer is also measured, because its matrix products shrink with the number of ranks, but other costs do not.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.bench.lone_rank import LoneRank
from hpcbench.comm.policy import Policy
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.training import Model
from hpcbench.errors import UserError
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.parallelize import split_layers
from hpcbench.parallel.tensor import InOneDimension
from hpcbench.train.model import GPT, Block

_DEPTH = 6
"""Number of layers that are run in sequence."""
_LONGEST = 128
"""Maximum number of positions per sample. Additional tokens form further samples."""
_PARAMETERS = 1 << 23
"""Number of parameters in the measured optimizer update. They do not fit in a cache."""
_POSITIONS: tuple[Literal["learned", "rotary"], ...] = ("learned", "rotary")
_SPLIT = tuple((ways, spread) for ways in (2, 4) for spread in (False, True))
"""Layer shardings: number of ranks, and whether positions between layers are also sharded."""
_DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
_NEIGHBOUR = (
    "import torch; torch.set_num_threads(1);from hpcbench.bench.layers import LayerShape, make_stack;"
    "step = make_stack(LayerShape({hidden}, {tokens}, 'learned'), 'fp32', 'cpu');step.forward();step.backward();"
    "print('ready', flush=True)\nwhile True: step.forward(); step.backward()"
)


class LayerShape(NamedTuple):
    """A layer shape: width, number of tokens, kind of positions, and sharding."""

    hidden: int
    tokens: int
    positions: Literal["learned", "rotary"]
    ways: int = 1
    """Number of tensor-parallel ranks."""
    spread: bool = False
    """Whether positions between layers are sharded over these ranks (sequence parallelism)."""

    @property
    def model(self) -> Model:
        """Model whose layers have this shape."""
        heads = max(1, self.hidden // (64 if self.hidden >= 512 else 32))
        return Model(layers=_DEPTH, hidden=self.hidden, heads=heads, positions=self.positions)

    @property
    def seq_len(self) -> int:
        """Number of positions per sample."""
        return min(self.tokens, _LONGEST)

    @property
    def micro_batch(self) -> int:
        """Number of samples."""
        return max(1, self.tokens // self.seq_len)

    @property
    def can_be_split(self) -> bool:
        """Whether heads and positions are evenly divisible among ranks."""
        return self.model.heads % self.ways == 0 and self.seq_len % self.ways == 0


class LayerStack:
    """Consecutive layers, and buffers into which each backward pass copies the gradients."""

    def __init__(self, layers: nn.Sequential, x: Tensor) -> None:
        self._layers, self._x = layers, x
        self._homes = [(parameter, torch.zeros_like(parameter)) for parameter in layers.parameters()]
        self._y, self._upstream = x, torch.randn_like(x)

    def forward(self) -> None:
        """Run one forward pass."""
        self._y = self._layers(self._x)

    def backward(self) -> None:
        """Run the backward pass of the last forward pass."""
        self._y.backward(self._upstream)  # type: ignore[no-untyped-call]
        for parameter, home in self._homes:
            assert parameter.grad is not None
            home.copy_(parameter.grad)
            parameter.grad = None


def make_stack(shape: LayerShape, precision: str, device: str) -> LayerStack:
    """Build layers with random values, or one rank's part of the layers."""
    model, dtype = shape.model, _DTYPES[precision]
    blocks = nn.Sequential(*(Block(model, layer) for layer in range(_DEPTH))).to(device=device, dtype=dtype)
    if shape.ways > 1:
        _split(blocks, shape, dtype, device)
    held = shape.seq_len // (shape.ways if shape.spread else 1)
    x = torch.randn(shape.micro_batch, held, shape.hidden, device=device, dtype=dtype)  # [b, s, h], or [b, s/t, h]
    return LayerStack(blocks, x.requires_grad_())


def _split(blocks: nn.Sequential, shape: LayerShape, dtype: torch.dtype, device: str) -> None:
    """Replace the layers with one rank's part of the layers, with new random values."""
    tensors = InOneDimension(LoneRank(shape.ways), Policy(Scheme()), by_positions=shape.spread)
    split_layers(blocks, GPT.tensor_parallel, tensors)
    for layer in blocks.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if parameter.is_meta:
                values = torch.randn(parameter.shape, dtype=dtype, device=device) / shape.hidden**0.5
                setattr(layer, name, nn.Parameter(values))


def measure_layers(
    sizes: Sequence[int],
    tokens: Sequence[int],
    *,
    precision: str,
    device: str,
    repeats: int,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Any]]:
    """Measure one layer's forward and backward times in seconds, as medians over turns.

    Parameters
    ----------
    sizes, tokens
        Widths, and numbers of tokens per micro-batch.

    Returns
    -------
    Two rows per shape, for the forward and the backward pass. The shapes include whole layers, and one rank's part of
    sharded layers.
    """
    wanted = [LayerShape(h, t, positions) for h in sizes for t in tokens for positions in _POSITIONS]
    split = [LayerShape(h, t, "learned", *how) for h in sizes for t in tokens for how in _SPLIT]
    wanted += [shape for shape in split if shape.can_be_split]
    wait, clock = _choose_clock(device)
    rows = []
    for done, shape in enumerate(wanted):
        part = f", split {shape.ways} ways" if shape.ways > 1 else ""
        progress(done, len(wanted), f"layer {shape.hidden}, {shape.tokens} positions{part}")
        layers = make_stack(shape, precision, device)
        turns: list[tuple[float, float]] = []
        for turn in range(repeats + 1):  # The first turn allocates memory and is not counted.
            begin = clock()
            layers.forward()
            wait()
            middle = clock()
            layers.backward()
            wait()
            if turn:
                turns.append((middle - begin, clock() - middle))
        for passage, seconds in zip(
            ("forward", "backward"), map(statistics.median, zip(*turns, strict=True)), strict=True
        ):
            row = {"precision": precision, "pass": passage, "seconds": seconds / _DEPTH}
            rows.append({**_describe_shape(shape), **row})
    progress(len(wanted), len(wanted), "")
    return rows


def _describe_shape(shape: LayerShape) -> dict[str, Any]:
    model = shape.model
    return {
        "hidden": shape.hidden,
        "heads": model.heads,
        "seq_len": shape.seq_len,
        "micro_batch": shape.micro_batch,
        "positions": shape.positions,
        "tp": shape.ways,
        "sequence_parallel": shape.spread,
    }


def measure_update(*, device: str, repeats: int) -> float:
    """Measure the time of an fp32 AdamW update in seconds per parameter."""
    wait, clock = _choose_clock(device)
    master, gradient = (torch.randn(_PARAMETERS, device=device) for _ in range(2))
    state = AdamWState(AdamW(0.9, 0.95, 1e-8, 0.1), master, [slice(0, _PARAMETERS)])
    state.step(master, gradient, lr=1e-4)
    turns = []
    for _ in range(repeats):
        wait()
        begin = clock()
        state.step(master, gradient, lr=1e-4)
        wait()
        turns.append(clock() - begin)
    return min(turns) / _PARAMETERS


def _choose_clock(device: str) -> tuple[Callable[[], object], Callable[[], float]]:
    """Return a function that waits for the device, and the clock to use.

    A single thread is timed with processor time.
    """
    if device == "cuda":
        return torch.cuda.synchronize, time.perf_counter
    return (lambda: None), (time.process_time if torch.get_num_threads() == 1 else time.perf_counter)


@contextmanager
def run_neighbors(count: int, *, hidden: int, tokens: int) -> Iterator[None]:
    """Run `count` additional processes that compute layers on the same cores."""
    script = _NEIGHBOUR.format(hidden=hidden, tokens=tokens)
    others = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for other in others:
            assert other.stdout is not None
            if not other.stdout.readline():
                raise UserError("a background process ended immediately. Run again without --beside")
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()
