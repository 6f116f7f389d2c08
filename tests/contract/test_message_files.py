"""Tests of message sample files: written data are read back, and other files are refused."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hpcbench.contract.message_samples import (
    MessagePart,
    SampledMessage,
    SampledStep,
    name_file,
    read_samples,
    write_samples,
)
from hpcbench.contract.training import Train
from hpcbench.errors import UserError
from hpcbench.features.messages.settings import MessageSamples

PARTS = (MessagePart("blocks.0.mlp.up.weight", (3, 4), 2), MessagePart("blocks.0.norm.bias", (4,), 14))
OWN = SampledMessage("TP BACKWARD GRAD x", "reduce-scatter", 5, "bfloat16", 18, PARTS, bytes(range(36)))


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    first = SampledStep(12, 60, (OWN, OWN), left_out=3)
    write_samples(tmp_path, first)
    write_samples(tmp_path, SampledStep(12, 60, (OWN,)))
    assert read_samples(tmp_path / name_file(60, 12)) == SampledStep(12, 60, (OWN,)), "the step was taken again"
    assert [path.name for path in tmp_path.iterdir()] == ["step-60-rank-12.zip"]


def test_a_directory_that_cannot_be_written_keeps_no_half_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_samples(tmp_path / "gone", SampledStep(0, 1, (OWN,)))


@pytest.mark.parametrize("lost", ["dtype", "parts"])
def test_a_list_of_messages_that_lacks_a_field_is_refused(lost: str, tmp_path: Path) -> None:
    write_samples(tmp_path, SampledStep(0, 1, (OWN,)))
    path = tmp_path / name_file(1, 0)
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read("about.json"))
        values = archive.read("0")
    del about["messages"][0][lost]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("about.json", json.dumps(about))
        archive.writestr("0", values)
    with pytest.raises(
        UserError,
        match=r"not a complete file of message samples \(truncated or changed\): remove the file, or run again",
    ):
        read_samples(path)


@pytest.mark.parametrize("cut", [1, 50, -60, -1])
def test_a_cut_file_is_refused(cut: int, tmp_path: Path) -> None:
    write_samples(tmp_path, SampledStep(0, 1, (OWN,)))
    path = tmp_path / name_file(1, 0)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match=r"not a complete file of message samples \(truncated or changed\)"):
        read_samples(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": []}, "at least 1 item"),
        ({"steps": [5, 3]}, "ascending order"),
        ({"steps": [3, 3]}, "ascending order"),
        ({"steps": [0]}, "greater than or equal to 1"),
        ({"steps": [3], "each": 0}, "greater than or equal to 1"),
        ({"steps": [3], "message_mb": 65.0}, "is larger than mb 64"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MessageSamples(**change)


def test_a_step_that_is_not_taken_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"keep_messages.steps ends with step 60, but there are only 50"):
        Train(steps=50, global_batch=8, keep_messages=MessageSamples(steps=[20, 60]))
