"""Diagnoses of a trace that PyTorch has just recorded."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.contract.interpose import Groups
from hpcbench.diagnose.diagnosis import diagnose
from hpcbench.diagnose.kineto import read_rank
from hpcbench.diagnose.show import sentences

PROGRAM = Path(__file__).with_name("traced_ddp.py")
WIDTH, LAYERS, STEPS = 256, 4, 3


@pytest.mark.long
def test_a_ddp_program_over_gloo(tmp_path: Path) -> None:
    """The gradients of all parameters are reduced once per step, as the shapes in the trace show."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, str(PROGRAM), str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    diagnosis = diagnose([read_rank(tmp_path / f"rank{rank}.json") for rank in range(2)], Groups())
    (row,) = diagnosis.rows
    assert (diagnosis.steps, diagnosis.ranks, diagnosis.world, diagnosis.is_gpu) == (STEPS, (0, 1), 2, False)
    assert (row.kind.dimension, row.kind.operation, row.kind.dtype) == ("DP", "all-reduce", "fp32")
    assert row.message_bytes == pytest.approx(4 * LAYERS * (WIDTH * WIDTH + WIDTH))
    assert row.calls > 1 and row.calls == pytest.approx(round(row.calls)), "the same number of buckets in each step"
    assert row.waiting is not None and row.exposed_waiting is not None
    assert 0 <= row.exposed_waiting <= row.waiting <= row.seconds
    assert 0 < row.exposed <= min(row.seconds, diagnosis.step_seconds) and 0 < diagnosis.computing < 1
    assert sentences(diagnosis)[0].startswith("Communication is exposed for ")


@pytest.mark.long
def test_a_program_without_profiler(tmp_path: Path) -> None:
    """The steps of an unchanged program are traced from outside."""
    program = Path(__file__).parents[2] / "studies" / "programs" / "gpt_ddp.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "hpcbench", "diagnose", "--run", "--directory", str(tmp_path / "traces")]
    for steps, status in ((8, 0), (3, 2)):
        done = subprocess.run(
            [*command, "--", *launch, str(program), "--steps", str(steps)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == status, done.stderr[-2000:]
        if status:
            assert done.stderr.splitlines()[-1].endswith(
                "no rank has written a trace (it needs 8 steps of a torch.optim optimizer)"
            )
        else:
            assert "\nCommunication is exposed for " in f"\n{done.stdout}" and "per step and rank" in done.stdout
            assert {path.name for path in (tmp_path / "traces").iterdir()} == {"rank0.json.gz", "rank1.json.gz"}


@pytest.mark.long
@pytest.mark.parametrize("steps", [8, 3])
def test_a_dry_run_ends_with_the_answer(steps: int, tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "studies" / "programs" / "gpt_ddp.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "hpcbench", "run", "--dry", "--out", str(tmp_path / "out")]
    command += ["--", *launch, str(program), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    last = done.stderr.splitlines()[-2:]
    if steps < 8:
        assert last[-1].startswith("hpcbench: no diagnosis: it needs 8 steps")
    else:
        assert last[0].startswith("hpcbench: Communication is exposed for ")
        assert "faster" in last[1] or "cannot pay" in last[1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rank-0.json", "rank-1.json"}
