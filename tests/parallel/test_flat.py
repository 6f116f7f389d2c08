"""Tests that the optimizer's compiled loops are bitwise identical for all cuts, thread counts and instruction sets."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from hpcbench.codecs.library import INSTRUCTION_SETS, kernels
from hpcbench.parallel import flat
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.sharding import Held, Shard

SETTINGS = AdamW(0.9, 0.95, 1e-8, 0.1)
N = flat.GRAIN + 4321
DECAYS = [slice(0, 33), slice(33, 70), slice(1001, 200003)]
DTYPES = [torch.float32, torch.float64]


def builds():
    for name in INSTRUCTION_SETS:
        try:
            yield kernels(name)
        except ValueError:
            continue


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def trained(dtype, cuts=(0, N), factor=0.3):
    """Return master weights and moments after a few steps on pieces that end at `cuts`."""
    torch.manual_seed(1)
    master = torch.randn(N, dtype=dtype)
    states = []
    for start, stop in pairwise(cuts):
        inside = [slice(max(d.start, start) - start, min(d.stop, stop) - start) for d in DECAYS]
        decays = [part for part in inside if part.start < part.stop]
        states.append(AdamWState(SETTINGS, master[start:stop], decays))
    for k in range(3):
        gradient = torch.randn(N, dtype=dtype) * 10.0 ** (k - 3)
        for state, (start, stop) in zip(states, pairwise(cuts), strict=True):
            state.step(master[start:stop], gradient[start:stop], lr=1e-3 * (k + 1), factor=factor)
    return [master, *(torch.cat([getattr(state, name) for state in states]) for name in ("first", "second"))]


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_adamw_gives_an_element_the_same_bits_wherever_it_lies(dtype):
    weights = trained(dtype)
    assert equal(trained(dtype, (0, 16, 1003, 150001, N)), weights)
    assert not equal(trained(dtype, factor=0.3000001), weights)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_build_gives_the_same_bits(dtype, monkeypatch):
    values = torch.randn(N, dtype=dtype)
    results = []
    for build in builds():
        monkeypatch.setattr(flat, "kernels", lambda build=build: build)
        results.append((build.instruction_set, trained(dtype), flat.squares(values)))
    assert len(results) >= 1
    for name, states, sum_ in results[1:]:
        assert equal(states, results[0][1]), name
        assert sum_ == results[0][2], name


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype, two_threads):
    values = torch.randn(N, dtype=dtype)
    many = trained(dtype), flat.squares(values)
    torch.set_num_threads(1)
    assert equal(trained(dtype), many[0])
    assert flat.squares(values) == many[1]


def test_adamw_equals_pytorchs_with_clipping_and_parts_without_decay():
    torch.manual_seed(1)
    start = torch.randn(N, dtype=torch.float64)
    decaying = torch.zeros(N, dtype=torch.bool)
    for part in DECAYS:
        decaying[part] = True
    parts = [nn.Parameter(start[where]) for where in (decaying, ~decaying)]
    groups = [{"params": [parts[0]], "weight_decay": 0.1}, {"params": [parts[1]], "weight_decay": 0.0}]
    oracle = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    for k in range(3):
        gradient = 0.3 * torch.randn(N, dtype=torch.float64) * 10.0 ** (k - 3)
        for part, where, group in zip(parts, (decaying, ~decaying), oracle.param_groups, strict=True):
            part.grad = gradient[where]
            group["lr"] = 1e-3 * (k + 1)
        oracle.step()
    expected = torch.empty(N, dtype=torch.float64)
    expected[decaying], expected[~decaying] = (part.detach() for part in parts)
    assert torch.allclose(trained(torch.float64)[0], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 100, N])
@pytest.mark.parametrize("dtype", DTYPES)
def test_squares(dtype, n):
    values = torch.randn(n, dtype=dtype)
    assert flat.squares(values) == pytest.approx(float(values.double().square().sum()), rel=1e-13)


def test_non_finite_values_reach_the_norm():
    for bad in (torch.inf, torch.nan):
        values = torch.zeros(100)
        values[77] = bad
        assert not flat.squares(values) < torch.inf


def test_a_bucket_takes_the_first_gradient_and_adds_the_next_ones():
    """The first gradient replaces the bucket's old values. Elements that no backward pass reaches are zero."""
    parameters = [nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(7))]
    bucket = Bucket([Held(p, Shard(str(k), tuple(p.shape))) for k, p in enumerate(parameters)], 1)
    bucket.gradients.fill_(99.0)
    bucket.await_gradients()
    for micro in (1.0, 2.0):
        (parameters[0] * micro).sum().backward()
        bucket.take_gradient(0)
    bucket.clear_missing()
    used, unused = (bucket.gradients[slot.span] for slot in bucket.slots)
    assert used.tolist() == [3.0] * 15
    assert unused.tolist() == [0.0] * 7
    assert not bucket.gradients[bucket.padding].any()
    assert parameters[0].grad.data_ptr() == bucket.gradients.data_ptr()
