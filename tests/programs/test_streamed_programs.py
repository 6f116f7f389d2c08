"""Tests of unmodified programs whose groups report the backend NCCL, and for which whole gloo collectives are used."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).parent / "streamed_worker.py"
Ranks = list[dict[str, Any]]
ENCODED = {
    "ddp": {"all-reduce"},
    "ddp in bf16": {"all-reduce"},
    "ddp compiled": {"all-reduce"},
    "fsdp1": {"all-gather", "reduce-scatter"},
    "fsdp2": {"all-gather", "reduce-scatter", "functional gather"},
    "tensor parallel": {"all-reduce", "functional gather"},
    "sequence parallel": {"reduce-scatter", "functional gather"},
    "pipeline": set(),
}
"""Calls that each program encodes."""


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    out = tmp_path_factory.mktemp("streamed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    reports: Ranks = json.loads((out / "ranks.json").read_text(encoding="utf-8"))
    return reports


@pytest.mark.parametrize("program", ENCODED)
def test_programs_train_with_encoded_calls(ranks: Ranks, program: str) -> None:
    for rank in ranks:
        plain, coded = (rank["programs"][f"{program}, {mode}"] for mode in ("plain", "int8"))
        rows = [row for row in coded["rows"] if row["codec"]]
        assert {row["call"] for row in rows} == ENCODED[program]
        assert (coded["losses"] != plain["losses"]) == bool(rows)
        assert all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(coded["losses"], plain["losses"], strict=True))


@pytest.mark.parametrize("run", [*(f"{program}, int8" for program in ENCODED if program != "pipeline"), "ddp, zfp:8"])
def test_replicas_agree_bit_for_bit(ranks: Ranks, run: str) -> None:
    assert len({rank["programs"][run]["digest"] for rank in ranks}) == 1


@pytest.mark.parametrize("program", ENCODED)
def test_bytes_equal_those_of_the_plans(ranks: Ranks, program: str) -> None:
    for rank in ranks:
        for row in rank["programs"][f"{program}, int8"]["rows"]:
            assert not row["codec"] or [row["message_bytes"], row["wire_bytes"]] == row["plan"]


def test_the_control_without_a_codec_changes_no_bit_of_two_ranks(ranks: Ranks) -> None:
    for rank in ranks:
        plain, control = (rank["programs"][f"ddp, {mode}"] for mode in ("plain", "none"))
        assert control["digest"] == plain["digest"]
        assert any(row["codec"] == "none" and row["calls"] for row in control["rows"])


def test_messages_in_bf16_are_half_as_long(ranks: Ranks) -> None:
    for rank in ranks:
        (row,) = [row for row in rank["programs"]["ddp, bf16"]["rows"] if row["codec"]]
        assert row["dtype"] == "float32" and 0.5 <= row["wire_bytes"] / row["message_bytes"] < 0.51
        assert row["encode_s"] > 0 and row["decode_s"] > 0


def test_each_kind_of_call_is_encoded_within_the_error_of_the_codec(ranks: Ranks) -> None:
    for rank in ranks:
        calls = dict(rank["calls"])
        assert calls.pop("exact calls") == 0
        assert max(calls.values()) < 0.02, calls
        assert len(calls) == 10 and sum(error > 0 for error in calls.values()) >= 9


def test_the_hook_of_ddp_equals_the_kernels(ranks: Ranks) -> None:
    for rank in ranks:
        assert rank["hook"]["hook"] == rank["hook"]["kernels"] != rank["hook"]["plain"]


def test_what_nccl_does_not_carry_stays_exact_by_name(ranks: Ranks) -> None:
    expected = {
        "xpk": ["variable size over nccl"],
        "mpc": ["variable size over nccl"],
        "auto": ["auto over nccl"],
        "ring": ["algorithm over nccl"],
        "between nodes": ["between nodes over nccl"],
        "pipeline": ["point to point over nccl"],
        "dry": ["dry run: int8:256"],
        "dry xpk": ["variable size over nccl"],
        "baseline": ["no codec"],
    }
    assert [rank["refusals"] for rank in ranks] == [expected] * len(ranks)


def test_the_objects_of_fsdp2_equal_the_kernels(ranks: Ranks) -> None:
    for rank in ranks:
        runs = rank["fsdp2"]
        assert runs["objects"] == runs["kernels"] != runs["plain"]
        assert runs["small"] == runs["none"] == runs["plain"]
        assert runs["gloo"][0] == pytest.approx(runs["objects"][0], rel=1e-3) and runs["gloo"] != runs["plain"]
    assert len({rank["fsdp2"]["objects"][1] for rank in ranks}) == 1
