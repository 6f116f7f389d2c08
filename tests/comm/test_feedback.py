"""Tests that error feedback in collectives loses no value, and that residuals follow the published recurrence."""

from pathlib import Path

import numpy as np
import pytest
from collective_cases import SLICING, digest
from plan_cases import contribution
from simulate import roundtrip

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm

WORKER = Path(__file__).with_name("feedback_worker.py")
N, RANKS, FEW = 2000, 3, 5
CODECS = ("sign:64", "topk:0.01", "int4:32")


@pytest.mark.parametrize("codec", CODECS)
def test_the_mean_of_many_sums_comes_to_the_exact_one_only_with_feedback(mpi_results, codec):
    lines = [line for line in mpi_results(RANKS, WORKER, "mean") if line["codec"] == codec]
    assert len(lines) == 2 * 3
    for line in lines:
        half, full = line["errors"]
        if line["feedback"]:
            assert full <= 0.7 * half, line
            assert line["unexplained"] <= 1e-6, line
        else:
            assert full >= 0.99 * half, line
    # the worst result with feedback is better than the best without
    best = {
        feedback: [line["errors"][1] for line in lines if line["feedback"] is feedback] for feedback in (True, False)
    }
    assert max(best[True]) <= 0.5 * min(best[False])


def recurrence(codec, times):
    """Yield the expected results and residuals of all ranks after each two-shot sum, as defined in the papers."""
    request = Request(
        Operation.ALL_REDUCE, N, np.dtype("f4"), Topology.flat(RANKS), codec, algorithm=Algorithm.TWO_SHOT
    )
    planned = plan(request, SLICING)
    worker, server = np.zeros((2, RANKS, N), np.float32)
    for _ in range(times):
        result = np.empty(N, np.float32)
        for owner, piece in ((rank, slice(*pieces[rank])) for pieces in planned.slices for rank in range(RANKS)):
            parts = []
            for rank in range(RANKS):
                own_values = contribution(rank, N, "float32")[piece]
                if rank != owner:
                    wanted = own_values + worker[rank, piece]
                    own_values = roundtrip(codec, wanted)[1]
                    worker[rank, piece] = wanted - own_values
                parts.append(own_values)
            wanted = (parts[0] + parts[1]) + parts[2] + server[owner, piece]
            result[piece] = roundtrip(codec, wanted)[1]
            server[owner, piece] = wanted - result[piece]
        yield [[digest(x) for x in (result, worker[rank], server[rank])] for rank in range(RANKS)]


@pytest.mark.parametrize("codec", CODECS)
def test_residuals_are_those_of_the_recurrence_and_can_be_forgotten(mpi_results, codec):
    lines = [line for line in mpi_results(RANKS, WORKER, "residuals") if line["codec"] == codec]
    want = list(recurrence(get_codec(codec), FEW))
    want.append(want[0])  # after forget
    assert len(lines) == RANKS * len(want)
    for line in lines:
        assert line["told"] == want[line["turn"]][line["rank"]], (line["turn"], line["rank"])


def test_residuals_of_another_call_do_not_pass(mpi_results):
    (line,) = mpi_results(RANKS, WORKER, "stale")
    right = [x for x in mpi_results(RANKS, WORKER, "mean") if x["codec"] == "int4:32" and x["feedback"]]
    assert line["error"] > 10 * max(x["errors"][1] for x in right)


def test_a_rank_that_is_killed_in_a_collective_ends_the_job(mpi_run):
    done = mpi_run(RANKS, WORKER, "dies", timeout=60, server=None)
    assert done.returncode != 0
    assert "turn 0" in done.stdout and "turn 99" not in done.stdout
