"""Tests of the activations that a recomputed layer saves, on a single rank."""

import math

import pytest
import torch
from cases import NEOX
from torch import Tensor

from hpcbench.parallel.recompute import Recomputed, recompute
from hpcbench.predict import flops
from hpcbench.train.model import GPT

B, S, LAYERS = 2, 6, 5
H, A = NEOX.hidden, NEOX.heads


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread, because more threads do not speed up operations on such small tensors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute attention explicitly. Unlike the fused kernels, this computation saves the scores."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones(S, S).triu(1).bool(), -torch.inf).softmax(-1) @ v


def passed(what, *, core=None):
    """Return the gradients of a model's blocks, and the shapes of the activations saved for the backward pass."""
    torch.manual_seed(3)
    model = GPT(NEOX.changed(layers=LAYERS), S).double()
    for block in model.blocks.values():
        block.attention.core = core or block.attention.core
    names = [name for name, _ in model.named_parameters()]
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    recompute(model, what)
    saved = {}

    def pack(x: Tensor) -> Tensor:
        if x.untyped_storage().data_ptr() not in weights:
            saved[x.untyped_storage().data_ptr(), x.shape] = x
        return x

    x = torch.randn(B, S, H, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(B, S, H, dtype=torch.float64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = x
        for block in model.blocks.values():
            y = block(y)
    shapes = [tuple(tensor.shape) for tensor in saved.values()]
    y.backward(upstream)
    if what in ("none", "selective"):
        assert names == [name for name, _ in model.named_parameters()], "names of weights in a checkpoint"
    return y.detach(), x.grad, shapes


@pytest.mark.parametrize("what", ["selective", "full", 1, 2, 3, 99])
def test_recomputation_changes_no_bit(what):
    for core in (None, explicit):
        plain, recomputed = passed("none", core=core), passed(what, core=core)
        assert torch.equal(plain[0], recomputed[0])
        assert torch.equal(plain[1], recomputed[1])


@pytest.mark.parametrize(("what", "inputs"), [("full", 5), (1, 5), (2, 3), (3, 2), (99, 1)])
def test_only_the_inputs_are_kept(what, inputs):
    assert passed(what)[2] == [(B, S, H)] * inputs
    assert len(passed("none")[2]) > 10 * LAYERS


def test_selective_keeps_no_scores():
    scores = (B, A, S, S)
    assert passed("none", core=explicit)[2].count(scores) >= LAYERS
    saved = passed("selective", core=explicit)[2]
    assert scores not in saved and (B * A, S, S) not in saved
    assert len(saved) > 10 * LAYERS, "the rest of the layer is kept"


def test_nothing_is_kept_nor_wrapped_without_gradients():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not Recomputed(lambda y: y * 2)(x).requires_grad


def test_an_input_without_gradient_gets_none():
    x, weight = torch.ones(3), torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    Recomputed(lambda x, w: (x + 1) * w)(x, weight).sum().backward()
    assert x.grad is None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("layers", "hidden", "mfu", "hfu"),
    [(48, 6144, 41.5, 43.7), (96, 12288, 51.4, 52.8), (105, 20480, 56.0, 57.0), (128, 25600, 56.3, 57.0)],
)
def test_hardware_over_model_flops_as_published(layers, hidden, mfu, hfu):
    """Compare with the ratio of two columns of table 5 in arXiv 2205.05198, which are rounded to 0.1 %."""
    shape = {"layers": layers, "hidden": hidden, "vocab": 51200, "seq_len": 2048}
    model = flops.count_model_flops(**shape)
    ratio = flops.count_hardware_flops(**shape, recompute="selective") / model
    assert ratio == pytest.approx(hfu / mfu, rel=0.1 / mfu)
    assert ratio == pytest.approx(1 + 2048 / (6 * hidden), rel=0.01)
    assert flops.count_hardware_flops(**shape, recompute="none") == model
    full = flops.count_hardware_flops(**shape, recompute="full")
    assert full == flops.count_hardware_flops(**shape, recompute=4)
    blocks = model - 6 * 2048 * hidden * 51200  # the head is not recomputed
    assert full - model == pytest.approx(blocks / 3)
