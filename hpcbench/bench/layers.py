"""Layers of a transformer on this machine, as a step computes them: one after another, on weights that no cache holds.

A layer takes longer than its matrix products: norms, activations, attention, memory for what is kept, and the operators
that Python starts. `hpcbench predict` takes from here by how much. A rank's part of a layer that tensor parallelism has
split is measured, too: its products shrink by the number of ranks, and the rest does not.
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
"""Layers in a row."""
_LONGEST = 128
"""Positions of a sample; more tokens are more samples."""
_PARAMETERS = 1 << 23
"""Parameters of the optimizer's update that is measured: more than caches hold."""
_POSITIONS: tuple[Literal["learned", "rotary"], ...] = ("learned", "rotary")
_SPLIT = tuple((ways, spread) for ways in (2, 4) for spread in (False, True))
"""Ranks among which layers are split, and whether they split the positions between layers, too."""
_DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
_NEIGHBOUR = (
    "import torch; torch.set_num_threads(1);from hpcbench.bench.layers import Shape, stack;"
    "step = stack(Shape({hidden}, {tokens}, 'learned'), 'fp32', 'cpu');step.forward();step.backward();"
    "print('ready', flush=True)\nwhile True: step.forward(); step.backward()"
)


class Shape(NamedTuple):
    """A layer: its width, the tokens that pass it, how it knows their positions, and how it is split."""

    hidden: int
    tokens: int
    positions: Literal["learned", "rotary"]
    ways: int = 1
    """Ranks of tensor parallelism."""
    spread: bool = False
    """Whether each of them holds a part of the positions between layers: sequence parallelism."""

    @property
    def model(self) -> Model:
        """A model of such layers."""
        heads = max(1, self.hidden // (64 if self.hidden >= 512 else 32))
        return Model(layers=_DEPTH, hidden=self.hidden, heads=heads, positions=self.positions)

    @property
    def seq_len(self) -> int:
        """Positions of a sample."""
        return min(self.tokens, _LONGEST)

    @property
    def micro_batch(self) -> int:
        """Samples."""
        return max(1, self.tokens // self.seq_len)

    @property
    def can_be_split(self) -> bool:
        """Whether each rank has as many heads, and as many positions, as any other one."""
        return self.model.heads % self.ways == 0 and self.seq_len % self.ways == 0


class Stack:
    """Layers in a row, with the buffers into which a step moves their gradients."""

    def __init__(self, layers: nn.Sequential, x: Tensor) -> None:
        self._layers, self._x = layers, x
        self._homes = [(one, torch.zeros_like(one)) for one in layers.parameters()]
        self._y, self._upstream = x, torch.randn_like(x)

    def forward(self) -> None:
        """One forward pass."""
        self._y = self._layers(self._x)

    def backward(self) -> None:
        """The backward pass of the last forward pass."""
        self._y.backward(self._upstream)  # type: ignore[no-untyped-call]
        for parameter, home in self._homes:
            assert parameter.grad is not None
            home.copy_(parameter.grad)
            parameter.grad = None


def stack(shape: Shape, precision: str, device: str) -> Stack:
    """Layers of a shape with random values, or one rank's part of them."""
    model, dtype = shape.model, _DTYPES[precision]
    blocks = nn.Sequential(*(Block(model, layer) for layer in range(_DEPTH))).to(device=device, dtype=dtype)
    if shape.ways > 1:
        _split(blocks, shape, dtype, device)
    held = shape.seq_len // (shape.ways if shape.spread else 1)
    x = torch.randn(shape.micro_batch, held, shape.hidden, device=device, dtype=dtype)  # [b, s, h], or [b, s/t, h]
    return Stack(blocks, x.requires_grad_())


def _split(blocks: nn.Sequential, shape: Shape, dtype: torch.dtype, device: str) -> None:
    """Leave one rank's part of the layers, with new random values."""
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
    """Seconds of one layer, forward and backward: the median of the turns.

    Parameters
    ----------
    sizes, tokens
        Widths, and positions of a micro-batch.

    Returns
    -------
    Two rows for each shape: the forward and the backward pass of whole layers, and of one rank's part of split ones.
    """
    wanted = [Shape(h, t, positions) for h in sizes for t in tokens for positions in _POSITIONS]
    split = [Shape(h, t, "learned", *how) for h in sizes for t in tokens for how in _SPLIT]
    wanted += [shape for shape in split if shape.can_be_split]
    wait, clock = _clock(device)
    rows = []
    for done, shape in enumerate(wanted):
        part = f", split {shape.ways} ways" if shape.ways > 1 else ""
        progress(done, len(wanted), f"layer {shape.hidden}, {shape.tokens} positions{part}")
        layers = stack(shape, precision, device)
        turns: list[tuple[float, float]] = []
        for turn in range(repeats + 1):  # the first one pays for memory
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
            rows.append({**_about(shape), "precision": precision, "pass": passage, "seconds": seconds / _DEPTH})
    progress(len(wanted), len(wanted), "")
    return rows


def _about(shape: Shape) -> dict[str, Any]:
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
    """Seconds of AdamW's update, for each parameter, in fp32."""
    wait, clock = _clock(device)
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


def _clock(device: str) -> tuple[Callable[[], object], Callable[[], float]]:
    """How to wait for a device, and by which clock to time it: one thread that shares its core by its own time."""
    if device == "cuda":
        return torch.cuda.synchronize, time.perf_counter
    return (lambda: None), (time.process_time if torch.get_num_threads() == 1 else time.perf_counter)


@contextmanager
def neighbours(count: int, *, hidden: int, tokens: int) -> Iterator[None]:
    """So many other processes that compute layers meanwhile, on the same cores."""
    script = _NEIGHBOUR.format(hidden=hidden, tokens=tokens)
    others = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for other in others:
            assert other.stdout is not None
            if not other.stdout.readline():
                raise UserError("a process that should compute meanwhile ended at once: try without --beside")
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()
