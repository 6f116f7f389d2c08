"""The command `hpcbench run`: wrong input, a dry run, and a real program under torchrun."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "train.py"
GRADIENTS = 4 * (128 * 256 + 256 + 256 * 128 + 128)
"""Bytes of the script's gradients."""


def run(*options: str, command: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SCRIPT)]
    whole = [sys.executable, "-m", "hpcbench", "run", *options, "--", *(launcher if command is None else command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, env=environment, check=False)


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", output)]


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = tmp_path_factory.mktemp("dry")
    return run("--dry", "--out", str(out)), out


def test_a_dry_run_lists_what_is_sent_and_changes_nothing(dry: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, out = dry
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 3
    assert "what 2 of 2 ranks gave" in done.stderr
    (row,) = [
        row
        for row in json.loads((out / "rank-1.json").read_text(encoding="utf-8"))["rows"]
        if row["call"] == "all-reduce" and row["why"] == "no codec"
    ]
    assert (row["dimension"], row["call_bytes"], row["codec"]) == ("DP", 3 * GRADIENTS, "")


def test_int8_on_the_same_script(dry: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path) -> None:
    forked = [sys.executable, str(SCRIPT.with_name("forked.py")), str(SCRIPT)]
    done = run("--scheme", "naive-int8", "--out", str(tmp_path), command=forked)
    assert done.returncode == 0, done.stderr
    plain, coded = losses(dry[0].stdout), losses(done.stdout)
    assert coded != plain
    assert coded == pytest.approx(plain, rel=0.01)
    rows = json.loads((tmp_path / "rank-0.json").read_text(encoding="utf-8"))["rows"]
    (row,) = [row for row in rows if row["codec"]]
    assert row["codec"] == "int8:256"
    assert row["message_bytes"] == 3 * GRADIENTS  # two ranks: half the vector to be summed, half a sum to be gathered
    assert 0.25 < row["wire_bytes"] / row["message_bytes"] < 0.26
    assert "group 'odd one' (2 ranks) has no known dimension and travels exactly" in done.stderr
    assert "{match: '^odd\\ one$', dimension: DP}" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no scheme: --scheme naive-int8"),
        (["--scheme", "naive-int9"], "naive-int9"),
        (["--scheme", "onebit-adam"], "brings its own optimizer"),
        (["--dry", "--groups", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_input_is_one_line(options: list[str], words: str) -> None:
    done = run(*options, command=["true"])
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_command_that_is_not_there_and_a_program_that_says_nothing() -> None:
    assert "no such command" in run("--dry", command=["no-such-launcher"]).stderr
    done = run("--dry", command=["true"])
    assert done.returncode == 1
    assert "no rank has reported" in done.stderr
    assert run("--dry", command=["sh", "-c", "exit 7"]).returncode == 7


def test_a_groups_file_with_a_fault_names_its_line(tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text("min_bytes: 4096\ngroups:\n  - {match: '[', dimension: DP}\n", encoding="utf-8")
    done = run("--dry", "--groups", str(groups), command=["true"])
    assert done.returncode == 2
    assert f"{groups}:3" in done.stderr


def test_a_damaged_setting_never_breaks_the_import_of_torch_and_the_kernels_need_no_mpi() -> None:
    environment = {**os.environ, "HPCBENCH_TORCH": "{"}
    code = (
        "import sys, torch; sys.modules['mpi4py'] = None; import hpcbench.torch.intercept; print(torch.ones(1).item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0\n")
    assert "PyTorch's calls are left alone" in done.stderr


def test_the_command_and_the_package_import_neither_torch_nor_mpi_before_they_need_them() -> None:
    code = (
        "import sys, hpcbench.program.command, hpcbench.torch.autoload, hpcbench.torch.dimensions;"
        "print([m for m in ('torch', 'mpi4py', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
