"""Tests of tensor-parallel operations: comparison with one process, finite differences, codecs and message bytes."""

from pathlib import Path

import pytest
import torch
from runs import MODELS, TRAIN, in_pairs, run_of
from torch import nn

from hpcbench.comm.policy import Policy
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buckets import make_buckets
from hpcbench.parallel.sharding import Cut, Held, Shard
from hpcbench.predict import volume

WORKER = Path(__file__).with_name("tensor_worker.py")
OPERATIONS = ("enter", "leave", "column", "row", "embedding", "positions", "cross-entropy")
STREAMS = ("whole", "spread")

TOLERANCE = 1e-14
"""Tolerance in fp64 relative to the norm of the reference, for sums of a few values of order one."""


def find_result(results, **wanted):
    (match,) = [result for result in results if all(result.get(key) == value for key, value in wanted.items())]
    return match


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_and_its_gradients_equal_those_of_one_process(mpi_results, operation, stream):
    result = find_result(mpi_results(2, WORKER, "alone"), operation=operation, stream=stream)
    assert max(result["errors"]) <= TOLERANCE
    assert result["gradcheck"]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("phase", ["FORWARD", "BACKWARD"])
@pytest.mark.parametrize("codec", ["zfp:8", "int8:256"])
def test_codec_is_in_one_direction_only_and_ranks_decode_the_same(mpi_results, codec, phase, stream):
    result = find_result(mpi_results(2, WORKER, "alone"), codec=codec, phase=phase, stream=stream)
    assert result["same"]
    assert 1e-4 < result["error"] < 0.2, "the codec was never used, or lost all values"
    assert result["ratio"] > 3
    assert max(result["straight"]) == 0.0 and result["plain"], "the other direction is exact"


def test_message_bytes_equal_the_closed_form(mpi_results):
    """The cases include the built-in algorithms and each precision. Bytes are summed over the ranks."""
    results = mpi_results(4, WORKER, "traffic")
    assert len(results) == 7
    for result in results:
        dp, tp, pp = (int(part[2:]) for part in result["layout"].split("-"))
        layout = Layout(dp=dp, tp=tp, pp=pp)
        run = in_pairs(
            run_of(
                result["model"],
                layout,
                precision=result["precision"],
                sequence_parallel=result["sequence_parallel"],
            )
        )
        expected = volume.count_all_ranks_bytes(run.model, run.train, layout)
        assert result["sent"] == {" ".join(key): nbytes for key, nbytes in expected.items()}, result


def test_closed_form_by_hand():
    """Count the bytes of one layer with h 2, s 3 and one sample in fp32.

    An all-reduce sends 2 (2-1) 4 = 8 bytes per value. Activations of 6 values cross three region boundaries in each
    direction. With sequence parallelism, the gradients of norms (4h), of biases of row layers (2h), of the last norm
    (2h) and of positions (3h) are summed.
    """
    model = MODELS["gpt2"].changed(layers=1, hidden=2, heads=2)
    train = TRAIN.changed(seq_len=3, global_batch=1, micro_batch=1, precision="fp32", zero=0)

    def sent(layout, **more):
        return volume.count_all_ranks_bytes(model, train.changed(**more), layout)

    exact = {("EXACT", "FORWARD", "ACT"): 8 * 3 * 3, ("EXACT", "STEP", "OPTIM"): 2 * 8}
    undivided = sent(Layout(tp=2))
    assert undivided == {("TP", "FORWARD", "ACT"): 144, ("TP", "BACKWARD", "GRAD"): 144, **exact}
    again = {**undivided, ("TP", "FORWARD", "ACT"): 144 + 96}
    assert sent(Layout(tp=2), recompute="full") == sent(Layout(tp=2), recompute=3) == again
    assert sent(Layout(tp=2), recompute="selective") == undivided
    assert sent(Layout(tp=2), sequence_parallel=True) == {
        ("SP", "FORWARD", "ACT"): 144,
        ("SP", "BACKWARD", "GRAD"): 144,
        ("EXACT", "BACKWARD", "GRAD"): 8 * (4 + 2 + 2 + 3) * 2,
        **exact,
    }
    assert sent(Layout(), sequence_parallel=True) == {}


def test_a_rule_for_tp_holds_for_sequence_parallelism_until_one_for_sp():
    rules = [
        Rule(codec="zfp:8", dimension="TP"),
        Rule(codec="zfp:16", dimension="SP", phase="BACKWARD"),
    ]
    policy = Policy(Scheme(rules=rules))
    codecs = [
        policy.channel(dimension, phase, MessageKind.ACT).codec.name
        for dimension in (Dimension.TP, Dimension.SP, Dimension.PP)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    ]
    assert codecs == ["zfp:8", "zfp:8", "zfp:8", "zfp:16", "none", "none"]


@pytest.mark.parametrize("limit", [100, 220, 400, 1000])
def test_ranks_with_unequal_parts_cut_the_same_buckets(limit):
    """If buckets differed within a tensor group, so would calls, causing wrong random seeds or a deadlock."""
    shapes = {"table": (7, 4), "norm": (4,), "up": (8, 4), "bias": (4,), "head": (7, 4)}

    def cut(rank: int) -> list[list[str]]:
        held = []
        for name, shape in shapes.items():
            copied = Shard(name, shape, replicated=("t",), copy=rank, copies=2)
            shard = Shard(name, shape, (Cut(rank, 2), Cut(0, 1))) if len(shape) == 2 else copied
            held.append(Held(nn.Parameter(torch.zeros(shard.local_shape)), shard))
        buckets = make_buckets(held, limit_bytes=limit / 4, replicas=1)
        return [[slot.shard.name for slot in bucket.slots] for bucket in buckets]

    assert cut(0) == cut(1)
