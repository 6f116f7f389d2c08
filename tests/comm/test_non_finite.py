"""Tests that NaN and infinity reach every rank from any rank and position, with every codec and algorithm."""

import numpy as np
import pytest
from plan_cases import FLAT, PAIRS, REGULAR, carried_out, contribution, lay_out
from simulate import homomorphic_sum

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import refusal

N = 300
CODECS = [
    *("none", "mpc:1", "xpk", "zfp:8", "zfp:16", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8:256", "int4:32"),
    *("sign:64", "topk:0.01", "threshold:0.001", "rowsparse:16", "2:4"),
]
VALUES = (np.nan, np.inf, -np.inf)
ALGORITHMS = [algorithm for operation, algorithm in PAIRS if operation is Operation.ALL_REDUCE]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.value)
@pytest.mark.parametrize("codec", CODECS)
def test_non_finite_values_reach_every_rank(codec, algorithm):
    assert get_codec(codec).carries_overflow
    for topology in (FLAT[4], REGULAR[0]):
        assert refusal(Operation.ALL_REDUCE, algorithm, topology) is None
        planned = lay_out(Operation.ALL_REDUCE, N, topology, get_codec(codec), algorithm)
        calm = [contribution(rank, N, "float32") for rank in range(topology.ranks)]
        assert all(np.isfinite(x).all() for x in carried_out(planned, calm).values)
        for value in VALUES:
            for rank in range(topology.ranks):
                for place in (0, 131, N - 1):
                    values = [x.copy() for x in calm]
                    values[rank][place] = value
                    with np.errstate(invalid="ignore"):
                        results = carried_out(planned, values).values
                    assert not any(np.isfinite(x[place]) for x in results), (value, rank, place)


@pytest.mark.parametrize("value", VALUES)
def test_a_homomorphic_sum_of_non_finite_values_is_nan(value):
    values = [contribution(rank, N, "float32") for rank in range(5)]
    values[3][131] = value
    total = homomorphic_sum(values, 64)
    assert np.isnan(total[128:192]).all() and np.isfinite(total[:128]).all() and np.isfinite(total[192:]).all()
