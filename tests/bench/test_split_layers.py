"""Tests of the layers that `hpcbench bench gemm` times: whole layers, and one rank's tensor-parallel part."""

from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.bench.layers import LayerShape, make_stack, measure_layers
from hpcbench.bench.lone_rank import LoneRank
from hpcbench.comm.policy import Policy
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase

CHANNEL = Policy(Scheme()).channel(Dimension.TP, Phase.FORWARD, MessageKind.ACT)


def products(shape: LayerShape) -> int:
    """Count, with PyTorch's counter, the additions and multiplications in products and attention in both passes."""
    from torch.utils.flop_counter import FlopCounterMode

    layers = make_stack(shape, "fp32", "cpu")
    with FlopCounterMode(display=False) as counter:
        layers.forward()
        layers.backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("ways", [2, 4])
def test_one_rank_of_a_split_layer_multiplies_its_part(ways: int, spread: bool) -> None:
    total, part = LayerShape(128, 64, "learned"), LayerShape(128, 64, "learned", ways, spread)
    assert products(total) > 0 and products(part) * ways == products(total)


def test_what_only_some_ranks_could_hold_is_not_split() -> None:
    assert LayerShape(128, 64, "learned", 4).can_be_split
    assert not LayerShape(64, 64, "learned", 4).can_be_split, "two heads"
    assert not LayerShape(128, 6, "learned", 4).can_be_split, "six positions"


def test_rows_say_how_a_layer_is_split() -> None:
    rows = measure_layers([64], [32], precision="fp32", device="cpu", repeats=1)
    result = [(row["positions"], row["tp"], row["sequence_parallel"], row["pass"]) for row in rows]
    total = [(positions, 1, False) for positions in ("learned", "rotary")]
    split = [("learned", 2, spread) for spread in (False, True)]
    assert result == [(*how, passage) for how in total + split for passage in ("forward", "backward")]
    assert all(row["seconds"] > 0 for row in rows)


def test_a_rank_that_is_alone_gives_each_operation_its_shape() -> None:
    group = LoneRank(4)
    assert (group.rank, group.size) == (0, 4)
    values: Any = np.arange(8, dtype=np.float32)
    group.all_reduce(values, channel=CHANNEL).wait()
    assert values.tolist() == list(range(8))
    piece = np.empty(2, np.float32)
    group.reduce_scatter(values, piece, channel=CHANNEL).wait()
    assert piece.tolist() == [0, 1]
    joined = np.empty(8, np.float32)
    group.all_gather(piece, joined, channel=CHANNEL).wait()
    assert joined.tolist() == [0, 1] * 4
    assert CHANNEL.counters.message_bytes == 0, "nothing is sent"


def test_weights_of_split_layers_have_values() -> None:
    layers = make_stack(LayerShape(64, 32, "learned", 2, spread=True), "fp32", "cpu")
    layers.forward()
    layers.backward()
    assert all(torch.isfinite(home).all() and home.abs().sum() > 0 for _, home in layers._homes)
