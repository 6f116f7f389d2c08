"""Worker that compares layers on a tensor grid with undivided layers: values, gradients, bytes and memory.

Prints JSON lines.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from grid_weights import count_backward_elements, count_forward_elements, count_weights
from mpi4py import MPI
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.grid import ActivationCuts
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.training import Model
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.parallelize import parallelize
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.parallel.tensor import Tensors, tensors_of
from hpcbench.predict import grid as predicted
from hpcbench.train.initial import key_of
from hpcbench.train.model import GPT, loss

WORLD = MPI.COMM_WORLD
POSITIONS = 3
LAYOUTS = {
    4: [Layout(tp=4, tensor="2d")],
    8: [Layout(tp=8, tensor="2.5d", depth=2), Layout(tp=8, tensor="3d")],
    9: [Layout(tp=9, tensor="2d")],
    27: [Layout(tp=27, tensor="3d")],
}
BLOCK = "blocks.0"


class Side(NamedTuple):
    """A model in one process, or this rank's part of the model."""

    module: Any
    held: list[Held]
    tensors: Tensors
    mesh: Mesh
    policy: Policy


def model_on(layout: Layout) -> Model:
    """Return the smallest model whose dimensions are divisible by all grid dimensions."""
    q = layout.grid.sizes["j"] if layout.tensor != "1d" else 2
    fine = q * q
    return Model(
        layers=1,
        hidden=2 * fine,
        heads=q,
        vocab=-(-256 // fine) * fine,
        positions="learned",
        rotary_fraction=0.0,
        parallel_residual=False,
        tied=False,
    )


def random(name: str, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(key_of(name) % 2**31)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def build(layout: Layout, model: Model, comm: MPI.Comm, scheme: Scheme, dtype: torch.dtype, overlap: bool) -> Side:
    """Build a model with random parameters, including biases and norms."""
    mesh, policy = Mesh(comm, layout, Progress(Wait.GIVE_WAY, background=overlap)), Policy(scheme)
    tensors = tensors_of(mesh, policy, by_positions=False, overlap=overlap)
    with torch.device("meta"):
        module = GPT(model, POSITIONS)
    held = parallelize(module, mesh=mesh, tensors=tensors, dtype=dtype, device="cpu", tied=False)
    for parameter, shard in held:
        parameter.data = (0.5 * random(shard.name, *shard.shape))[shard.held].to(dtype)
    return Side(module, held, tensors, mesh, policy)


def part(side: Side, x: Tensor, spread: ActivationCuts) -> Tensor:
    """Return the rank's block of the activations, shape [b, s, n]."""
    grid, rank = side.mesh.grid, side.mesh.tp.rank
    slices = [
        cut_evenly(size, grid.count(axes))[grid.index(rank, axes)]
        for size, axes in zip(x.shape[::2], spread, strict=True)
    ]
    return x[slices[0], :, slices[1]]


def gradients(side: Side) -> dict[str, tuple[Shard, Tensor]]:
    """Return the parameter gradients, reduced over the ranks that hold the same part."""
    result = {}
    for parameter, shard in side.held:
        if parameter.grad is None:
            continue
        full = parameter.grad.numpy().copy()
        if shard.partial:
            side.mesh.over(shard.replicated).all_reduce(full.reshape(-1), channel=side.policy.exact).wait()
        result[shard.name] = shard, torch.from_numpy(full)
        parameter.grad = None
    return result


def off(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def layers(side: Side, tokens: Tensor, targets: Tensor) -> dict[str, Callable[[Any], Tensor]]:
    module = side.module
    block = module.blocks["0"]
    mean = side.tensors.loss(loss, module.config.vocab)
    return {
        "embedding": lambda _: module.embedding(tokens),
        "attention": block.attention,
        "mlp": block.mlp,
        "norm": block.norm1,
        "block": block,
        "head": lambda x: mean(module.head(module.norm(x)), targets),
    }


def sent(side: Side) -> Counter[str]:
    channels = [channel for channel in side.policy.channels if channel.traffic[0] == "TP"]
    return Counter({" ".join(c.traffic): c.counters.message_bytes for c in channels if c.counters.message_bytes})


def foretold(layout: Layout, model: Model, rows: int) -> dict[str, dict[str, int]]:
    """Return the expected bytes of each layer in the forward and backward passes, in fp64."""
    qkv, out, up, down = predicted.list_block_products(rows, model)
    used = {
        "embedding": [predicted.make_lookup(rows, model)],
        "attention": [qkv, out],
        "mlp": [up, down],
        "norm": [],
        "block": [qkv, out, up, down],
        "head": [predicted.make_head(rows, model)],
    }
    expected = {}
    for name, products in used.items():
        total = Counter[tuple[str, ...]]()
        for layer in products:
            total += count_forward_elements(layout.grid, layer)
            total += count_backward_elements(layout.grid, layer)
        expected[name] = {" ".join(key): 8 * n for key, n in total.items() if n}
    return expected


def compare(layout: Layout, overlap: bool) -> None:
    model, samples = model_on(layout), layout.grid.samples
    tokens = torch.from_numpy(np.random.default_rng(5).integers(0, model.vocab, (samples, POSITIONS + 1)))
    given, targets = tokens[:, :-1], tokens[:, 1:]
    plain = Scheme(algorithm="native")
    full = build(Layout(), model, MPI.COMM_SELF, plain, torch.float64, False)
    split = build(layout, model, WORLD.Dup(), plain, torch.float64, overlap)
    stream, bytes_of = layout.grid.stream, foretold(layout, model, samples * POSITIONS)
    x, upstream = (random(name, samples, POSITIONS, model.hidden) for name in ("x", "upstream"))
    theirs = layers(full, given, targets)
    for name, ours in layers(split, given, targets).items():
        before, results, inputs = sent(split), [], []
        for layer, mine in ((ours, True), (theirs[name], False)):
            inputs.append((part(split, x, stream) if mine else x).clone().requires_grad_())
            results.append(layer(inputs[-1]))
            up = torch.tensor(1.7, dtype=torch.float64) if name == "head" else upstream
            results[-1].backward(part(split, up, stream) if mine and name != "head" else up)
        actual, expected = gradients(split), gradients(full)
        reference = results[1].detach()
        pairs = {"result": (results[0].detach(), reference if name == "head" else part(split, reference, stream))}
        if name != "embedding":
            pairs["input"] = inputs[0].grad, part(split, inputs[1].grad, stream)
        pairs |= {key: (value, expected[key][1][shard.held]) for key, (shard, value) in actual.items()}
        errors = {key: max(WORLD.allgather(off(*pair))) for key, pair in pairs.items()}
        sent_by_rank = WORLD.gather(dict(sent(split) - before))
        if WORLD.rank == 0:
            case = {"layout": layout.tensor, "ranks": WORLD.size, "overlap": overlap, "layer": name}
            same = all(rank == bytes_of[name] for rank in sent_by_rank)
            line = {**case, "errors": errors, "sent": sent_by_rank[0], "foretold": bytes_of[name], "bytes_equal": same}
            print(json.dumps({**line, "parameters": len(expected) == len(actual)}), flush=True)


def memory(layout: Layout) -> dict[str, Any]:
    """Return the number of parameters on a rank, and of elements that a layer saves for the backward pass.

    Each number is followed by the prediction of the formulas.
    """
    model, samples = model_on(layout), layout.grid.samples
    side = build(layout, model, WORLD.Dup(), Scheme(algorithm="native"), torch.float64, False)
    held = sum(parameter.numel() for parameter, _ in side.held)
    saved: list[int] = []
    parameters = {parameter.data_ptr() for parameter, _ in side.held}

    def pack(x: Tensor) -> Tensor:
        saved.append(0 if x.data_ptr() in parameters else x.numel())
        return x

    x = part(side, random("x", samples, POSITIONS, model.hidden), layout.grid.stream).clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        side.module.blocks["0"].mlp.up(x)
    up = predicted.list_block_products(samples * POSITIONS, model)[2]
    weights = count_weights(layout.grid, model, 1, first=True, last=True, seq_len=POSITIONS)
    return {
        "held": [held, weights],
        "kept": [sum(saved), predicted.count_kept_elements(layout.grid, up)],
    }


def lossy(layout: Layout) -> dict[str, Any]:
    """Check a layer whose weights are sent as 8-bit integers.

    The error bound of an output is the codec's bound per weight, multiplied by the largest sum of input magnitudes.
    """
    model, samples = model_on(layout), layout.grid.samples
    rules = [Rule(dimension="TP", kind="PARAM", axis="i", codec="int8:256")]
    coded = build(layout, model, WORLD.Dup(), Scheme(algorithm="two-shot", rules=rules), torch.float32, False)
    exact = build(layout, model, WORLD.Dup(), Scheme(algorithm="two-shot"), torch.float32, False)
    name, x = f"{BLOCK}.mlp.up.weight", random("x", samples, POSITIONS, model.hidden).float()
    local = part(coded, x, layout.grid.stream).clone()
    decoded, wanted = (side.module.blocks["0"].mlp.up(local).detach() for side in (coded, exact))
    weight = (0.5 * random(name, 4 * model.hidden, model.hidden)).float().numpy()
    each = get_codec("int8:256").error_bound(weight.reshape(-1))
    assert each is not None
    bound = each * float(x.abs().sum(dim=-1).max())
    return {"error": float((decoded - wanted).abs().max()), "bound": bound}


def main() -> None:
    for layout in LAYOUTS[WORLD.size]:
        for overlap in (False, True) if WORLD.size < 9 else (False,):
            compare(layout, overlap)
        reports = WORLD.gather({**memory(layout), **lossy(layout)})
        for rank in reports or []:
            print(json.dumps({"layout": layout.tensor, "ranks": WORLD.size, **rank}), flush=True)


if __name__ == "__main__":
    main()
