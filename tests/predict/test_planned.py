"""Tests of the processor time of plans and codecs if ranks share cores."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.predict import core_costs
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.call import PredictedCall
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import make_cpu_machine
from hpcbench.predict.measured_tables import apply_tables, read_tables
from hpcbench.predict.traffic import Costing
from hpcbench.predict.workload import Workload, make_train

CORES, CALL_S = 2.0, 0.25
INT8 = NamedScheme(name="int8", algorithm="encoded", default="int8:256")
SPEEDS = {"int8:256": CodecSpeed(1e9, 2e9, 1e-3, 0.25, InputBasis.HERE)}
N = 1 << 13


def of_pairs() -> core_costs.CoreCosts:
    """Links with a latency of 1 ms and 1 ns per byte. Planned calls take `CALL_S` longer."""
    message = ((1024.0, 1e-3), (float(1 << 20), 2e-3))
    calls = {"send": {(2, False): message, (2, True): message}}
    return core_costs.CoreCosts(calls, call_s=CALL_S, part_s=0.0, plan_factor=1.0)


def costing(layout: Layout) -> Costing:
    train = make_train(global_batch=8, micro_batch=1, seq_len=128, precision="fp32", zero=1)
    bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0)
    shared = replace(bare, fabric=replace(bare.fabric, core_costs=of_pairs()))
    return Costing(Workload(Model(layers=2, hidden=256, heads=8), train, layout, 2, INT8), shared, SPEEDS)


GRID = Layout(dp=2, tp=4, tensor="2d")


def of_grid(operation: str, axis: str) -> PredictedCall:
    return PredictedCall(("TP", "FORWARD", "ACT", axis), operation, N, 4, axis)


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_pieces_one_after_another_cost_the_cores_what_an_exchange_does(operation: str) -> None:
    """Each rank of a pair is the root once, so each sends and receives one piece, as in an all-gather."""
    traffic, axis = costing(GRID), GRID.grid.axes[0]
    pieces, exchange = (traffic.cost(of_grid(name, axis), size=2) for name in (operation, "all-gather"))
    assert pieces.inside - exchange.inside == pytest.approx(CALL_S, rel=1e-4), "but there are two calls"
    assert exchange.inside - CALL_S == pytest.approx(1e-3, rel=0.01), "one message, which is both its ends"
    half = N // 2 * 4  # bytes
    coded = half / 1e9 + 1e-3, half / 2e9 + 1e-3
    assert (pieces.encode, pieces.decode) == (exchange.encode, exchange.decode) == pytest.approx(coded)
    assert pieces.wire_bytes == pytest.approx(exchange.wire_bytes)


@pytest.fixture
def speed(tmp_path: Path) -> Callable[..., CodecSpeed]:
    def of(*, shared: bool, **more: Any) -> CodecSpeed:
        link = {"latency_s": 1e-3, "bytes_per_s": 1e9}
        clock = {"encode_bytes_per_s": 1e9, "decode_bytes_per_s": 2e9, "call_s": 1e-3, "ratio": 0.5}
        table = {"schema": 1, "within": link, "between": link, "codecs": {"bf16": clock}, "native": [],
                 "ranks_per_node": [2] * 4, **more}  # fmt: skip
        (tmp_path / "network.json").write_text(json.dumps(table))
        bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0)
        machine = replace(bare, shared_cores=CORES if shared else None)
        return apply_tables(machine, read_tables(tmp_path, asked_for=True), "fp32")[1]["bf16"]

    return of


def test_where_ranks_share_cores_a_codec_takes_the_seconds_that_it_computes(
    speed: Callable[..., CodecSpeed],
) -> None:
    computed = {"encode_bytes_per_s": 5e9, "decode_bytes_per_s": 6e9, "call_s": 1e-4, "ratio": 0.5}
    result = speed(shared=True, codecs_of_a_core={"bf16": computed})
    assert (result.encode_bytes_per_s, result.decode_bytes_per_s, result.call_s) == (5e9, 6e9, 1e-4)
    alone = speed(shared=False, codecs_of_a_core={"bf16": computed})
    assert (alone.encode_bytes_per_s, alone.call_s) == (1e9, 1e-3), "the clock holds where each rank has a core"
    older = speed(shared=True)
    assert (older.encode_bytes_per_s, older.call_s) == (4e9, 0.25e-3), "as if the ranks had taken turns"
