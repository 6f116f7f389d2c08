"""The command `hpcbench run`: wrong input is one line, and a program that says nothing is no success.

Real programs are run in test_session.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "hpcbench", "run", *options, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, env=environment, check=False)


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
