"""Tests of counting the bytes transferred between two points in time, using samples whose result is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.features.network.window import count_bytes, read_samples

RATE = 1000
"""Bytes per second sent by a fake node. The node receives twice as many."""


def write_samples(directory: Path, host: str, *, change: dict[int, Any] | None = None, **record: Any) -> None:
    """Write samples at 0, 1, ... 10 s. `change` replaces the devices of some samples."""
    lines = []
    for k in range(11):
        devices = {"eth0": ["interface", RATE * k, 2 * RATE * k]}
        devices = (change or {}).get(k, devices)
        lines.append(json.dumps({"time": 100.0 + k, "shared": False, "devices": devices, **record}))
    directory.mkdir(exist_ok=True)
    (directory / f"{host}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_bytes_are_those_between_the_two_times(tmp_path: Path):
    for host in ("n1-0", "n2-1"):
        write_samples(tmp_path, host)
    counted = count_bytes(read_samples(tmp_path), 102.5, 107.5, (4, 8))
    assert (counted.sent_bytes, counted.received_bytes) == (2 * 5 * RATE, 2 * 10 * RATE)
    assert counted.uncertain_bytes == 2 * 2 * RATE, "one sample interval at each end, on both nodes"
    assert counted.whole_sent_bytes == 2 * 10 * RATE
    assert (counted.from_step, counted.to_step, counted.nodes, counted.seconds) == (4, 8, 2, 5.0)
    assert counted.problems == () and counted.shared == ()


def test_a_window_within_one_interval_is_uncertain_as_a_whole(tmp_path: Path):
    write_samples(tmp_path, "n1")
    counted = count_bytes(read_samples(tmp_path), 102.2, 102.4, (1, 1))
    assert (counted.sent_bytes, counted.uncertain_bytes) == (RATE // 5, RATE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({5: {"eth0": ["interface", 3, 2 * RATE * 5]}}, "the counter decreased, because of a reset or an overflow"),
        ({5: {"eth0": ["interface", RATE * 5, 3]}}, "the counter decreased, because of a reset or an overflow"),
        ({5: {"eth0": ["interface", None, 2 * RATE * 5]}}, "the counter could not be read"),
    ],
    ids=["sent", "received", "unreadable"],
)
def test_bytes_of_a_damaged_counter_are_not_guessed(tmp_path: Path, change: dict[int, Any], problem: str):
    write_samples(tmp_path, "n1")
    write_samples(tmp_path, "n2", change=change)
    counted = count_bytes(read_samples(tmp_path), 102.0, 108.0, (1, 6))
    assert counted.sent_bytes is None and counted.received_bytes is None and counted.whole_sent_bytes is None
    assert counted.problems == (f"n2: eth0: {problem}",)


@pytest.mark.parametrize(
    ("begin", "end", "where"), [(99.0, 105.0, "before the first"), (105.0, 111.0, "after the last")]
)
def test_times_without_samples_have_no_bytes(tmp_path: Path, begin: float, end: float, where: str):
    write_samples(tmp_path, "n1")
    counted = count_bytes(read_samples(tmp_path), begin, end, (1, 6))
    assert counted.sent_bytes is None
    assert counted.problems == (f"n1: eth0: no sample {where} counted step",)


def test_traffic_that_two_counters_may_have_is_not_added(tmp_path: Path):
    devices = {k: {"eth0": ["interface", 9 * k, 9 * k], "bnxt0/1": ["roce", 8 * k, 8 * k]} for k in range(11)}
    write_samples(tmp_path, "n1", change=devices)
    counted = count_bytes(read_samples(tmp_path), 102.0, 108.0, (1, 6))
    assert counted.sent_bytes is None and "may also include this RDMA traffic" in (counted.problems or ("",))[0]
    idle = {k: {"eth0": ["interface", 9 * k, 9 * k], "bnxt0/1": ["roce", 8, 8]} for k in range(11)}
    write_samples(tmp_path, "n1", change=idle)
    assert count_bytes(read_samples(tmp_path), 102.0, 108.0, (1, 6)).sent_bytes == 9 * 6


def test_a_node_without_counters_and_a_shared_node_are_named(tmp_path: Path):
    write_samples(tmp_path, "n1", shared=True)
    write_samples(tmp_path, "n2", change={k: {} for k in range(11)})
    counted = count_bytes(read_samples(tmp_path), 102.0, 108.0, (1, 6))
    assert counted.shared == ("n1",)
    assert counted.problems == ("n2: has no network counter",) and counted.sent_bytes is None


def test_a_line_that_was_cut_is_left_out(tmp_path: Path):
    write_samples(tmp_path, "n1")
    with (tmp_path / "n1.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"time": 111.0, "dev')
    assert count_bytes(read_samples(tmp_path), 102.0, 108.0, (1, 6)).sent_bytes == 6 * RATE
