"""Tests of size thresholds and rules for traffic between nodes: exact byte counts, and agreement of both sides."""

from pathlib import Path

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.links import DEFAULT
from hpcbench.comm.plan import Operation
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

WORKER = Path(__file__).with_name("limits_worker.py")
N, FLOAT = 4096, np.dtype(np.float32)
CODEC = get_codec("int8:256")
QUARTER = CODEC.wire_bytes(N // 4, FLOAT)
SHARE = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}
"""Number of passes over the vector. An all-reduce consists of a reduce-scatter and an all-gather."""


@pytest.fixture(scope="module")
def reports(mpi_results):
    """Return the lines by worker function."""
    lines = mpi_results(4, WORKER, "collectives", "exchanges", "messages", "refusals")
    return {name: [line for line in lines if line["test"] == name] for name in {line["test"] for line in lines}}


def encoded_between(line):
    """Return message, wire and network bytes of two calls.

    Half of the vector goes to the neighbor, and a quarter to the other node.
    """
    share = 2 * SHARE[line["what"]]
    if line["nodes"] == "one":
        return [share * 3 * N, share * 3 * N, 0]
    return [share * 3 * N, share * (2 * N + QUARTER), share * QUARTER]


def test_collectives_encode_only_traffic_between_nodes(reports):
    for line in reports["collectives"]:
        if line["case"] == "between":
            assert line["bytes"] == encoded_between(line), line
            single = ({"native": 2}, 2)
            assert (line["algorithms"], line["plain_calls"]) == (
                single if line["nodes"] == "one" else ({"hierarchical": 2}, 0)
            ), line


def test_a_collective_below_the_threshold_is_not_encoded_and_is_counted(reports):
    for line in reports["collectives"]:
        message = 2 * SHARE[line["what"]] * 3 * N
        if line["case"] == "below":
            assert line["bytes"] == [message, message, 0] and line["plain_calls"] == 2, line
            assert line["algorithms"] == {"native": 2} and line["error"] == 0, line
        elif line["case"] == "half":  # message bytes refer to the values as sent
            assert line["bytes"][0] == line["bytes"][1] and line["plain_calls"] == 2, line
            assert line["algorithms"] == {"native": 2}, line
        elif line["case"] == "at":
            assert line["bytes"][:2] == [message, 2 * SHARE[line["what"]] * 3 * QUARTER], line
            assert line["plain_calls"] == 0, line


def test_a_codec_within_nodes_would_show_in_the_bytes(reports):
    for line in reports["collectives"]:
        if line["case"] == "fault":
            assert line["bytes"][0] == encoded_between(line)[0] and line["bytes"] != encoded_between(line), line
    wrong = [line for line in reports["exchanges"] if line["case"] == "fault" and not line["right"]]
    assert wrong and all(line["case"] == "fault" for line in reports["exchanges"] if not line["right"])


def test_each_message_of_an_exchange_is_decided_on_its_own(reports):
    coded_bytes, topology = CODEC.wire_bytes(N, FLOAT), {"two": Topology.regular(2, 2), "one": Topology.flat(4)}
    mixed = 0
    for line in reports["exchanges"]:
        if line["case"] == "fault":
            continue
        rank = line["rank"]
        if line["what"] == "all-to-all":
            assert line["bytes"] == line["want"], line
            mixed += line["mixed"]
            continue
        peer = (rank + int(line["what"].split()[-1])) % 4
        near = topology[line["nodes"]].near(rank, peer)
        wire = 4 * N if near or line["case"] == "threshold" else coded_bytes
        assert line["bytes"] == [4 * N, wire, 0 if near else wire], line
        source = (rank - int(line["what"].split()[-1])) % 4
        any_plain = line["case"] == "threshold" or near or topology[line["nodes"]].near(rank, source)
        assert line["plain_calls"] == any_plain, line
    assert mixed > 4, "some ranks send or receive both kinds"


def test_both_sides_of_a_message_agree_at_the_threshold(reports):
    for line in reports["messages"]:
        assert line["right"], line
        nbytes, plain = line["n"] * line["itemsize"], line["n"] < 100 or line["peer"] == 1
        if line["rank"] == 0:
            wire = nbytes if plain else CODEC.wire_bytes(line["n"], FLOAT)
            assert line["bytes"] == [nbytes, wire, wire if line["peer"] == 2 else 0], line
        if line["rank"] in (0, line["peer"]):
            assert line["plain_calls"] == plain, line


def test_rules_that_no_algorithm_can_follow_are_refused(reports):
    for line in reports["refusals"]:
        assert line["said"] == [
            "all-reduce over 4 ranks on 2 nodes, 3 + 1 cannot be encoded only between nodes: the algorithm requires "
            "the same number of ranks on every node",
            "broadcast over 2 nodes x 2 ranks cannot be encoded only between nodes: a broadcast forwards the data that "
            "its root has encoded",
            "channel DP: between_nodes needs algorithm hierarchical or auto, not ring",
        ]


@pytest.mark.parametrize("algorithm", [Algorithm.HIERARCHICAL, Algorithm.AUTO])
def test_the_text_of_a_plan_names_the_limits(algorithm):
    channel = Channel(
        Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, CODEC, algorithm, min_bytes=4 * 1000, between_nodes=True
    )
    large, small = np.zeros(1 << 22, np.float32), np.zeros(999, np.float32)

    def text(buf, topology):
        return str(Choice(0, topology, DEFAULT).plan(Operation.ALL_REDUCE, buf, channel))

    assert "(3996 bytes, less than min_bytes 4000)" in text(small, Topology.regular(2, 2))
    assert "(its ranks share a node, and only messages between nodes are encoded)" in text(large, Topology.flat(4))
    lines = text(large, Topology.regular(2, 2))
    assert "hierarchical" in lines or algorithm is Algorithm.AUTO
    assert "encoded between nodes only" in lines or "by the MPI library" in lines
