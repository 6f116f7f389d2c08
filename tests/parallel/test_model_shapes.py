"""Tests of grouped queries, gated MLPs, RMSNorm and wide experts, compared with one process and with plain PyTorch."""

import math
from pathlib import Path

import pytest
import shape_faults
import torch
import torch.nn.functional as F  # noqa: N812
from cases import GPT2, MOST_RANKS, NEOX
from shape_cases import FAULTY, LLAMA, NEMOTRON, OPEN, SHAPES, few, first_shapes, make_comparison, other_shapes
from test_parity import assert_bytes, assert_detected, assert_same
from tiers import list_names

from hpcbench.contract.layout import Layout
from hpcbench.parallel.recompute import recompute
from hpcbench.predict import flops
from hpcbench.predict.experts import describe_experts
from hpcbench.predict.memory import count_activation_bytes
from hpcbench.predict.workload import Workload, make_train
from hpcbench.train.model import GPT, loss

WORKER = Path(__file__).with_name("shape_worker.py")
S = 12
"""Number of positions per sample in the plain PyTorch reference."""


FEW = list_names(few)
NAMES = [*list_names(first_shapes), *(pytest.param(name, marks=pytest.mark.long) for name in list_names(other_shapes))]


def find_result(mpi_results, name):
    suite = few if name in FEW else other_shapes
    (result,) = (result for result in mpi_results(MOST_RANKS, WORKER, suite.__name__) if result["name"] == name)
    return result


@pytest.mark.parametrize("name", NAMES)
def test_trains_like_one_process(mpi_results, name):
    assert_same(find_result(mpi_results, name))


@pytest.mark.parametrize("name", NAMES)
def test_message_bytes_of_each_rank_equal_the_closed_forms(mpi_results, name):
    result = find_result(mpi_results, name)
    if "model=open" not in name:
        assert_bytes(result)
        return
    for sent, predicted in zip(result["sent"], result["predicted"], strict=True):  # expert rows depend on the text
        counted = {key for key in {*sent, *predicted} if not key.startswith(("EP", "TP"))}
        assert {key: sent.get(key) for key in counted} == {key: predicted.get(key) for key in counted}


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    model, place, seen_in = FAULTY[name]
    sound = find_result(mpi_results, make_comparison(model, place).name)
    assert_detected(sound, find_result(mpi_results, make_comparison(model, place, name).name), seen_in)


def test_every_fault_is_planted():
    assert FAULTY.keys() == shape_faults.FAULTS.keys()


# ---------------------------------------------------------------- plain PyTorch


def rms(x, weight):
    return weight * x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def layer_norm(x, weight, bias):
    centered = x - x.mean(dim=-1, keepdim=True)
    return weight * centered / (centered.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() + bias


def rotated(x, part, base):
    """Rotate feature pairs (i, i + part/2) as complex numbers. `x` has shape [s, d]."""
    half = part // 2
    turns = torch.arange(S, dtype=x.dtype)[:, None] / base ** (torch.arange(half, dtype=x.dtype) / half)
    turned = torch.complex(x[:, :half], x[:, half:part]) * torch.polar(torch.ones_like(turns), turns)
    return torch.cat((turned.real, turned.imag, x[:, part:]), dim=1)


def attend(x, model, weights, block):
    """Compute attention head by head for one sample, shape [s, h]."""
    d, queries = model.head_dim, model.heads // model.groups
    part = int(d * model.rotary_fraction)
    rows = weights[f"{block}.attention.qkv.weight"].view(model.groups, queries + 2, d, model.hidden)
    mask = torch.ones(S, S, dtype=torch.bool).tril()
    heads = []
    for head in range(model.heads):
        group, number = divmod(head, queries)
        q, k, v = (x @ rows[group, row].T for row in (number, queries, queries + 1))
        q, k = rotated(q, part, model.rotary_base), rotated(k, part, model.rotary_base)
        scores = (q @ k.T / math.sqrt(d)).masked_fill(~mask, -math.inf)
        heads.append(scores.softmax(dim=-1) @ v)
    return torch.cat(heads, dim=1) @ weights[f"{block}.attention.out.weight"].T


def mlp(x, model, weights, name):
    up, down = (weights[f"{name}.{layer}.weight"] for layer in ("up", "down"))
    if not model.gated:
        return (x @ up.T).clamp(min=0) ** 2 @ down.T
    gate, value = x @ up[::2].T, x @ up[1::2].T
    return (gate * torch.sigmoid(gate) * value) @ down.T


def mixture(x, model, weights, name):
    shares = (x @ weights[f"{name}.router.weight"].T).softmax(dim=-1)
    out = []
    for token, row in zip(x, shares, strict=True):
        best = row.topk(model.experts.top)
        chosen = [mlp(token, model, weights, f"{name}.experts.{i}") for i in best.indices.tolist()]
        out.append(sum(share * y for share, y in zip(best.values / best.values.sum(), chosen, strict=True)))
    return torch.stack(out) + mlp(x, model, weights, f"{name}.shared")


def logits_of(tokens, model, weights):
    """Compute the logits of one sample, shape [s], from the weights by name."""

    def norm(x, name):
        if model.norm == "rmsnorm":
            return rms(x, weights[f"{name}.weight"])
        return layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    x = weights["embedding.tokens.weight"][tokens]
    for layer in range(model.layers):
        block = f"blocks.{layer}"
        x = x + attend(norm(x, f"{block}.norm1"), model, weights, block)
        inside = mixture if layer in model.expert_layers else mlp
        x = x + inside(norm(x, f"{block}.norm2"), model, weights, f"{block}.mlp")
    return norm(x, "norm") @ weights["head.weight"].T


@pytest.mark.parametrize("model", [LLAMA, NEMOTRON, OPEN], ids=lambda model: model.name)
def test_one_process_computes_what_the_architecture_says(model):
    if model.experts:
        model = model.changed(experts=model.experts.changed(balance=0.0, z_loss=0.0))
    torch.manual_seed(5)
    gpt = GPT(model, S).double()
    for name, parameter in gpt.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in gpt.named_parameters()}
    tokens, targets = torch.randint(0, model.vocab, (2, 2, S))
    ours = gpt(tokens)
    plain = torch.stack([logits_of(sample, model, weights) for sample in tokens])
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    loss(ours, targets).backward()
    F.cross_entropy(plain.flatten(0, 1), targets.flatten()).backward()
    for name, parameter in gpt.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("model", SHAPES.values(), ids=SHAPES)
def test_the_formula_counts_the_parameters_of_the_model(model):
    shape = {
        "experts": describe_experts(model, make_train(global_batch=1, seq_len=S), Layout()),
        "block": flops.describe_block(model),
    }
    sizes = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": S}
    counted = flops.count_parameters(**sizes, positions=model.positions, tied=model.tied, **shape)
    assert counted == sum(parameter.numel() for parameter in GPT(model, S).parameters())


# ---------------------------------------------------------------- memory

B = 3
WITH_MEANS = LLAMA.changed(name="llama-layernorm", norm="layernorm")
"""A model with LayerNorm, because RMSNorm on a CPU is not a single kernel and saves more than on a GPU."""


def count_kept_bytes(model, what):
    """Return the number of bytes that a block saves for its backward pass, by storage."""
    gpt = GPT(model, S)
    for parameter in gpt.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    weights = {parameter.untyped_storage().data_ptr() for parameter in gpt.parameters()}
    recompute(gpt, what)
    storages = {}

    def pack(x):
        if x.untyped_storage().data_ptr() not in weights:
            storages[x.untyped_storage().data_ptr()] = x
        return x

    x = torch.randn(B, S, model.hidden, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        gpt.blocks["0"](x)
    return sum(x.untyped_storage().nbytes() for x in storages.values())


@pytest.mark.parametrize("what", ["none", "selective"])
@pytest.mark.parametrize("model", [NEOX, GPT2, NEMOTRON, WITH_MEANS], ids=lambda model: model.name)
def test_the_predicted_activations_are_those_that_a_block_keeps(model, what):
    train = make_train(global_batch=B, micro_batch=B, seq_len=S, precision="fp32", recompute=what)
    predicted = count_activation_bytes(Workload(model, train, Layout(), 1))
    assert predicted == pytest.approx(count_kept_bytes(model, what), rel=0.08)
