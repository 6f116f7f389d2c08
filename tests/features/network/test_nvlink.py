"""Tests of NVLink counters, which NVML reports per GPU, and which are separate from network bytes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from mpi4py import MPI

from hpcbench.features.network import observer
from hpcbench.features.network.counters import Reading
from hpcbench.features.network.nvlink import NvLinks
from hpcbench.features.network.report.sent import CountedBytes
from hpcbench.features.network.window import count_bytes, read_samples

KIB = 1024
TX, RX = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, int]]:
    """Emulate NVML with two GPUs that have NVLink and one that does not. Return the counters in KiB."""
    counters = {"a": {TX: 5, RX: 7}, "b": {}, "c": {TX: 100, RX: 200}}

    def ask(gpu: str, fields: list[tuple[int, int]]) -> list[Any]:
        assert {link for _, link in fields} == {0xFFFFFFFF}, "all links together"
        if not counters[gpu]:
            return [SimpleNamespace(nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED)] * len(fields)
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=counters[gpu][f])) for f, _ in fields]

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(counters))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda k: sorted(counters)[k])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", ask)
    return counters


def test_gpus_without_nvlink_are_left_out(gpus: dict[str, dict[int, int]]) -> None:
    links = NvLinks()
    assert links.read() == {
        "gpu0": Reading("nvlink", 5 * KIB, 7 * KIB),
        "gpu2": Reading("nvlink", 100 * KIB, 200 * KIB),
    }
    gpus["a"][TX] = 6
    assert links.read()["gpu0"].sent == 6 * KIB


def test_a_node_without_a_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert NvLinks().read() == {}


def test_nvlink_is_not_part_of_the_network(tmp_path: Path) -> None:
    lines = [
        {
            "time": 100.0 + k,
            "shared": False,
            "devices": {"eth0": ["interface", k, k], "gpu0": ["nvlink", 50 * k, 9 * k]},
        }
        for k in range(11)
    ]
    (tmp_path / "n1.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    counted = count_bytes(read_samples(tmp_path), 102.0, 106.0, (1, 4))
    assert (counted.sent_bytes, counted.whole_sent_bytes, counted.nvlink_bytes) == (4, 10, 200)


def test_a_node_with_nvlink_alone_has_no_network_counter(tmp_path: Path) -> None:
    lines = [{"time": 100.0 + k, "shared": False, "devices": {"gpu0": ["nvlink", k, k]}} for k in range(3)]
    (tmp_path / "n1.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    counted = count_bytes(read_samples(tmp_path), 100.5, 101.5, (1, 1))
    assert counted.sent_bytes is None and counted.problems == ("n1: has no network counter",)
    assert counted.nvlink_bytes == 1


def test_own_runs_read_them_at_the_counted_steps(
    gpus: dict[str, dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "read_counters", lambda: {"eth0": Reading("interface", 3, 3)})
    meter = observer.NetworkMeter(["n1"], MPI.COMM_SELF, first=1)
    meter.begin(1)
    gpus["c"][TX] += 30
    meter.pause(1, more=True)
    counted = meter.summary(from_step=1, to_step=1)
    assert (counted.sent_bytes, counted.nvlink_bytes) == (0, 30 * KIB)


def test_the_report_divides_by_steps_and_nodes() -> None:
    counted = CountedBytes(sent=1, uncertain=0, whole_run=None, nvlink=1200, steps=3, nodes=2)
    assert counted.nvlink_per_step_and_node == 200
    without = CountedBytes(sent=1, uncertain=0, whole_run=None, nvlink=None, steps=3, nodes=2)
    assert without.nvlink_per_step_and_node is None
