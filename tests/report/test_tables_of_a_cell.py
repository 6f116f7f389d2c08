"""Tests of the tables of one cell, compared with known values: speed, traffic, loss, memory."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, change, write
from report_tables import table

from hpcbench.present.document import Entry

STEPS, WARMUP, RANKS = 12, 2, 8
SHARES = (STEPS - WARMUP) * RANKS
"""Counted steps times ranks: the times in a traffic event are divided by this number."""
BASELINE = [
    {"dimension": "TP", "message": 4000, "wire": 4000, "exposed_s": 0.08, "hidden_s": 0.02, "transfer_s": 0.1},
    {"dimension": "DP", "message": 2000, "wire": 2000, "exposed_s": 0.02, "hidden_s": 0.06, "transfer_s": 0.08},
]
CODEC = [
    {"dimension": "TP", "message": 4000, "wire": 2000, "exposed_s": 0.04, "encode_s": 0.008, "decode_s": 0.016},
    {"dimension": "DP", "message": 2000, "wire": 500, "exposed_s": 0.01, "encode_s": 0.002, "decode_s": 0.004},
]


def plant(root: Path, *, repeats: int = 2) -> Path:
    runs = [
        Planted(scheme, repeat, seconds, 2.7)
        for repeat in range(1, repeats + 1)
        for scheme, seconds in (("baseline", 0.4), ("mzhybrid", 0.32))
    ]
    write(root, runs, steps=STEPS, warmup=WARMUP)
    for run in runs:
        change(root / "runs" / run.id / "log.txt", "traffic", traffic(BASELINE if run.scheme == "baseline" else CODEC))
    return root


def traffic(channels: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a run's traffic event, given the seconds per step and rank of each channel."""
    collected = []
    for channel in channels:
        seconds = {key: value * SHARES for key, value in channel.items() if key.endswith("_s")}
        counted = {"message_bytes": channel["message"], "wire_bytes": channel["wire"]}
        collected.append({"dimension": channel["dimension"], **counted, **seconds})
    return {"from_step": WARMUP + 1, "to_step": STEPS, "channels": collected}


def test_traffic(tmp_path: Path) -> None:
    table_rows = table(plant(tmp_path / "001"), "traffic")
    base, codec = table_rows["baseline"], table_rows["mzhybrid"]
    assert base["exposed_s"].value == pytest.approx(0.1)
    assert base["exposed_part"].value == pytest.approx(0.1 / 0.4)
    assert base["hidden_s"].value == pytest.approx(0.08)
    assert base["exposed_difference"].value is None
    assert codec["exposed_s"].value == pytest.approx(0.05)
    assert codec["exposed_difference"].value == pytest.approx(-0.05)
    assert codec["encode_s"].value == pytest.approx(0.01)
    assert codec["decode_s"].value == pytest.approx(0.02)
    assert (codec["wire_over_message_tp"].value, codec["wire_over_message_dp"].value) == (0.5, 0.25)
    assert "wire_over_message_pp" not in codec
    assert (codec["exposed_s"].shown, codec["exposed_difference"].shown) == ("50.00", "-50.00 (-50.00 to -50.00)")


def test_what_the_library_sent_is_unknown_by_dimension_too(tmp_path: Path) -> None:
    runs = [Planted("baseline", 1, 0.4, 2.7), Planted("mpi", 1, 0.3, 2.7, environment={"MV2_USE_ZFP": "1"})]
    table_rows = table(write(tmp_path / "001", runs), "traffic")
    assert table_rows["mpi"]["wire_over_message_dp"].shown == "unknown"
    assert table_rows["baseline"]["wire_over_message_dp"].shown == "1.000"


def test_no_traffic_no_table(tmp_path: Path) -> None:
    root = plant(tmp_path / "001")
    for log in root.glob("runs/*/log.txt"):
        lines = log.read_text().splitlines(keepends=True)
        gone = ('{"event": "traffic"', '{"event": "memory"')
        log.write_text("".join(line for line in lines if not line.startswith(gone)))
    assert table(root, "traffic") == {}
    assert table(root, "memory") == {}


def test_speed_over_runs(tmp_path: Path) -> None:
    table_rows = table(plant(tmp_path / "001"), "speed")
    codec = table_rows["mzhybrid"]
    assert codec["step_seconds"].value == pytest.approx(0.32)
    assert codec["samples_per_s"].value == pytest.approx(8 / 0.32)
    assert codec["tokens_per_s"].value == pytest.approx(8 / 0.32 * 128)
    assert codec["tokens_per_s_per_rank"].value == pytest.approx(128 / 0.32)
    assert codec["speed_ratio"].value == pytest.approx(0.4 / 0.32)
    assert "mfu" not in codec and "unlabelled_flops_per_rank" not in codec


def test_a_run_that_was_cut_counts_only_where_none_completed(tmp_path: Path) -> None:
    root = plant(tmp_path / "001")
    for log in (root / "runs/r2-baseline/log.txt", *root.glob("runs/*mzhybrid/log.txt")):
        text = log.read_text().replace("time 0.400000 s", "time 4.000000 s").replace("time 0.320000 s", "time 3.2 s")
        log.write_text(text.split("step  9/12")[0])
    table_rows = table(root, "speed")
    assert table_rows["baseline"]["tokens_per_s_per_rank"].value == pytest.approx(128 / 0.4)
    assert table_rows["mzhybrid"]["tokens_per_s_per_rank"].value == pytest.approx(128 / 3.2)
    assert (table_rows["baseline"]["samples_per_s"].shown, table_rows["mzhybrid"]["samples_per_s"].shown) == (
        "20.00",
        "2.500*",
    )
    assert "speed_ratio" not in table_rows["mzhybrid"]


def test_the_step_time_of_a_single_run_has_the_interval_of_its_steps(tmp_path: Path) -> None:
    steps = WARMUP + 40
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)], steps=steps, warmup=WARMUP)
    log = root / "runs/r1-baseline/log.txt"
    lines = log.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("step"))
    for i in range(WARMUP, steps):
        lines[first + i] = lines[first + i].replace("time 0.400000 s", f"time {0.4 + 0.001 * (i % 5):.6f} s")
    log.write_text("".join(lines))
    entry = table(root, "speed")["baseline"]["step_seconds"]
    assert entry.value == pytest.approx(0.402)
    assert entry.shown.startswith("402.0 (") and "to" in entry.shown


def test_kinds_of_flops_have_columns_of_their_own(tmp_path: Path) -> None:
    root = plant(tmp_path / "001")
    for log in root.glob("runs/*baseline/log.txt"):
        text = log.read_text()
        log.write_text(text.replace('"model_flops_per_sample": 640000000.0, ', "").replace("| model ", "| other "))
    table_rows = table(root, "speed")
    assert table_rows["baseline"]["model_flops_per_rank"].shown == "-"
    assert table_rows["baseline"]["hardware_flops_per_rank"].value is not None
    assert table_rows["mzhybrid"]["model_flops_per_rank"].value == pytest.approx(6.4e8 / 0.32)


def test_memory_is_the_peak_of_all_runs(tmp_path: Path) -> None:
    root = plant(tmp_path / "001")
    for number, log in enumerate(sorted(root.glob("runs/*/log.txt"))):  # r1 baseline, mzhybrid, r2 baseline, mzhybrid
        change(log, "memory", {"host_rank_bytes": (2 + number) * 2**30, "host_bytes": 16 * 2**30})
    table_rows = table(root, "memory")
    assert table_rows["baseline"]["host_rank_bytes"].value == 4 * 2**30
    assert (table_rows["baseline"]["host_rank_bytes"].shown, table_rows["baseline"]["host_rank_bytes_ratio"].shown) == (
        "4.000",
        "-",
    )
    assert table_rows["mzhybrid"]["host_rank_bytes_ratio"].value == 5 / 4
    assert table_rows["mzhybrid"]["host_bytes_ratio"].value == 1.0
    assert "device_bytes" not in table_rows["mzhybrid"]


def test_loss_names_lost_steps_of_a_run_that_diverged(tmp_path: Path) -> None:
    root = plant(tmp_path / "001")
    log = root / "runs/r2-mzhybrid/log.txt"
    text = log.read_text()
    log.write_text(
        text.split("step  7")[0].replace("skipped 0", "skipped 3") + "step  7/12 | loss nan | time 0.3 s |\n"
    )
    table_rows = table(root, "loss")
    codec = table_rows["mzhybrid"]
    assert (codec["skipped"].shown, codec["nan_steps"].shown) == ("3", "1")
    assert (table_rows["baseline"]["skipped"].shown, table_rows["baseline"]["nan_steps"].shown) == ("0", "0")
    assert codec["loss_valid"].shown == "nan"


def test_loss_at_equal_steps_and_at_equal_time(tmp_path: Path) -> None:
    root = write(
        tmp_path / "001",
        [
            Planted(scheme, repeat, seconds, loss + repeat / 1000)
            for repeat in (1, 2, 3)
            for scheme, seconds, loss in (("baseline", 0.4, 2.7), ("mzhybrid", 0.2, 2.7))
        ],
    )
    codec = table(root, "loss")["mzhybrid"]
    assert codec["loss_difference"].value == pytest.approx(0, abs=1e-12)
    assert (codec["loss_shown"].shown, codec["loss_shown"].tone) == ("no worse", "good")
    # When the faster run ends, the baseline has completed only half of its steps, and the loss depends on the step.
    assert codec["loss_in_time_difference"].value < -1
    assert (codec["loss_in_time_shown"].shown, codec["loss_in_time_shown"].tone) == ("better", "good")


def test_losses_beyond_all_measure_are_not_known(tmp_path: Path) -> None:
    """The sum of the losses is infinite, so the value is unknown, and no error is raised."""
    root = plant(tmp_path / "001")
    for log in root.glob("runs/*-mzhybrid/log.txt"):
        log.write_text(re.sub(r"\| loss \S+ ", "| loss 1e308 ", log.read_text()))
    table_rows = table(root, "loss")
    assert table_rows["mzhybrid"]["loss_train"] == Entry()
    assert table_rows["baseline"]["loss_train"].value is not None
