"""Tests of the predicted traffic list, and of rules with limits in training, with exact numbers of bytes."""

from pathlib import Path

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec

WORKER = Path(__file__).with_name("rules_worker.py")
CODEC = get_codec("int8:256")


@pytest.fixture(scope="module")
def reports(mpi_results):
    return mpi_results(4, WORKER)


@pytest.fixture
def limited(reports):
    """Return a function of scheme, dp and pp that returns the rows of a scheme with limits, keyed by channel."""

    def of(scheme, dp, pp):
        (rows,) = (line["rows"] for line in reports if line.get("case") == [scheme, dp, pp])
        return {(row["dimension"], row["phase"], row["kind"]): row for row in rows if row["dimension"] != "EXACT"}

    return of


def test_the_list_of_traffic_equals_the_sent_traffic(reports):
    cases = [line for line in reports if line["test"] == "triples"]
    assert len(cases) == 4
    for line in cases:
        assert line["found"] == line["live"], line
    assert len({tuple(triple) for line in cases for triple in line["live"]}) == 12, (
        "every kind of traffic is live in some case"
    )


def test_only_traffic_between_nodes_is_encoded(limited):
    rows, plain = limited("limited", 2, 1), limited("identity", 2, 1)
    assert rows.keys() == plain.keys()
    for key, row in rows.items():
        assert (row["min_bytes"], row["between_nodes"], row["codec"]) == (1024, True, "int8:256")
        assert row["message_bytes"] == plain[key]["message_bytes"] > 0, key
        assert row["calls"] == plain[key]["calls"], key
        if key[0] == "TP":
            assert row["wire_bytes"] == row["message_bytes"] and row["plain_calls"] == row["calls"], key
            assert row["network_bytes"] == 0, key
        else:
            assert row["wire_bytes"] < row["message_bytes"] and 0 < row["plain_calls"] < row["calls"], key


def test_messages_of_the_pipeline_between_nodes_have_the_codecs_bytes(limited):
    sent = limited("limited", 1, 2)["PP", "FORWARD", "ACT"]
    messages = sent["calls"] // 2
    values = sent["message_bytes"] // messages // 4
    assert sent["plain_calls"] == 0
    assert sent["wire_bytes"] == sent["network_bytes"] == messages * CODEC.wire_bytes(values, np.dtype(np.float32))


def test_a_sum_over_nodes_of_several_ranks_is_encoded_between_them_only(limited):
    for key, row in limited("limited", 4, 1).items():
        encoded = row["calls"] - row["plain_calls"]
        assert row["algorithms"]["hierarchical"] == encoded // 4 > 0, "of the first rank"
        assert 0 < row["network_bytes"] < row["message_bytes"] // 6, key
        assert row["wire_bytes"] - row["network_bytes"] >= row["message_bytes"] * 2 // 3, key


def test_tokens_for_experts_are_encoded_between_nodes_only(reports):
    """Of the three parts that a rank sends, one stays on the node and two go to the other node."""
    (line,) = (line for line in reports if line["test"] == "experts")
    rows = [row for row in line["rows"] if row["dimension"] == "EP"]
    assert [row["phase"] for row in rows] == ["BACKWARD", "FORWARD"]
    uncoded, coded = 4 * line["part"], CODEC.wire_bytes(line["part"], np.dtype(np.float32))
    for row in rows:
        assert (row["between_nodes"], row["codec"]) == (True, "int8:256")
        calls = row["calls"]
        assert row["plain_calls"] == calls > 0, "some parts of each call are not encoded"
        assert row["message_bytes"] == calls * 3 * uncoded
        assert row["wire_bytes"] == calls * (uncoded + 2 * coded)
        assert row["network_bytes"] == calls * 2 * coded


def test_nodes_of_unequal_size_are_refused_in_one_line(reports):
    (line,) = (line for line in reports if line["test"] == "irregular")
    message = (
        "scheme own: rule 1 (DP int8:256) encodes only between nodes, but a group of DP has 4 ranks on 2 nodes, 3 + 1: "
        "sums within nodes require the same number of ranks on each node: change layout or ranks_per_node, or "
        "leave between_nodes out"
    )
    assert line["said"] == [message] * 4
