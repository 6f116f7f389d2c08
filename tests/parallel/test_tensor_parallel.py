"""Tensor parallelism operation by operation: against one process, by finite differences, under codecs; its bytes."""

from pathlib import Path

import pytest
import torch
from runs import MODELS, TRAIN, in_pairs, run_of
from torch import nn

from hpcbench.comm.channel import Algorithm, Dimension, Kind, Phase
from hpcbench.comm.policy import Policy, Rule
from hpcbench.parallel.buckets import make_buckets
from hpcbench.parallel.layout import Layout
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.predict.volume import tensor_parallel_bytes

WORKER = Path(__file__).with_name("tensor_worker.py")
OPERATIONS = ("enter", "leave", "column", "row", "embedding", "positions", "cross-entropy")
STREAMS = ("whole", "spread")

TOLERANCE = 1e-14
"""In fp64 relative to the reference's own norm: sums of a few values of order one."""


def one(results, **wanted):
    (found,) = [result for result in results if all(result.get(key) == value for key, value in wanted.items())]
    return found


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_and_its_gradients_are_those_of_one_process(mpi_results, operation, stream):
    result = one(mpi_results(2, WORKER, "alone"), operation=operation, stream=stream)
    assert max(result["errors"]) <= TOLERANCE
    assert result["gradcheck"]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("phase", ["FORWARD", "BACKWARD"])
@pytest.mark.parametrize("codec", ["zfp:8", "int8:256"])
def test_codec_is_in_one_direction_only_and_ranks_decode_the_same(mpi_results, codec, phase, stream):
    result = one(mpi_results(2, WORKER, "alone"), codec=codec, phase=phase, stream=stream)
    assert result["same"]
    assert 1e-4 < result["error"] < 0.2, "the codec was never in the way, or lost everything"
    assert result["ratio"] > 3
    assert max(result["straight"]) == 0.0 and result["plain"], "the other direction is exact"


def test_message_bytes_equal_the_closed_form(mpi_results):
    results = mpi_results(4, WORKER, "traffic")
    assert len(results) == 7
    for result in results:
        model = MODELS[result["model"]]
        dp, tp, _ = (int(part[2:]) for part in result["layout"].split("-"))
        train = in_pairs(run_of("neox", Layout())).train
        expected = tensor_parallel_bytes(
            layers=model.layers,
            hidden=model.hidden,
            seq_len=TRAIN.seq_len,
            global_batch=train.global_batch,
            positions=model.positions,
            tp=tp,
            dp=dp,
            zero=train.zero,
            itemsize=8 if result["precision"] == "fp64" else 4,
            sequence_parallel=result["sequence_parallel"],
        )
        used, other = ("SP", "TP") if result["sequence_parallel"] else ("TP", "SP")
        keys = (f"{used} FORWARD ACT", f"{used} BACKWARD GRAD", "EXACT FORWARD ACT", "EXACT BACKWARD GRAD")
        assert tuple(result["sent"].get(key, 0) for key in keys) == expected, result
        assert not any(key.startswith(other) for key in result["sent"])


def test_closed_form_by_hand():
    """One layer, h 2, s 3, one sample, fp32 on two ranks: an all-reduce sends 2 (2-1) 4 = 8 bytes a value."""
    sizes = {
        "layers": 1,
        "hidden": 2,
        "seq_len": 3,
        "global_batch": 1,
        "dp": 1,
        "zero": 0,
        "itemsize": 4,
        "positions": "learned",
    }
    assert tensor_parallel_bytes(**sizes, tp=2, sequence_parallel=False) == (144, 144, 72, 0)
    assert tensor_parallel_bytes(**sizes, tp=2, sequence_parallel=True) == (144, 144, 72, 8 * (4 + 2 + 2 + 3) * 2)
    assert tensor_parallel_bytes(**sizes, tp=1, sequence_parallel=True) == (0, 0, 0, 0)


def test_a_rule_for_tp_holds_for_sequence_parallelism_until_one_for_sp():
    rules = [Rule("zfp:8", Dimension.TP), Rule("zfp:16", Dimension.SP, Phase.BACKWARD)]
    policy = Policy(algorithm=Algorithm.ENCODED, rules=rules)
    codecs = [
        policy.channel(dimension, phase, Kind.ACT).codec.name
        for dimension in (Dimension.TP, Dimension.SP, Dimension.PP)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    ]
    assert codecs == ["zfp:8", "zfp:8", "zfp:8", "zfp:16", "none", "none"]


@pytest.mark.parametrize("limit", [100, 220, 400, 1000])
def test_ranks_with_unequal_parts_cut_the_same_buckets(limit):
    """Else replicas over the tensor group would make other calls: wrong seeds of random rounding, or a standstill."""
    shapes = {"table": (7, 4), "norm": (4,), "up": (8, 4), "bias": (4,), "head": (7, 4)}

    def cut(rank: int) -> list[list[str]]:
        held = []
        for name, shape in shapes.items():
            shard = Shard(name, shape, 0 if len(shape) == 2 else None, rank, 2)
            held.append(Held(nn.Parameter(torch.zeros(shard.local_shape)), shard))
        buckets = make_buckets(held, limit_bytes=limit / 4, pieces=1)
        return [[slot.shard.name for slot in bucket.slots] for bucket in buckets]

    assert cut(0) == cut(1)
