"""Tests of diagnoses of freshly recorded PyTorch traces."""

import subprocess
import sys
from pathlib import Path

import pytest
from traced_sizes import LAYERS, MICRO_BATCHES, ROWS, STEPS, WIDTH

from hpcbench.diagnose.command import read_groups
from hpcbench.diagnose.diagnosis import Diagnosis, diagnose
from hpcbench.diagnose.kineto import read_rank
from hpcbench.diagnose.show import sentences

PROGRAM = Path(__file__).with_name("traced_program.py")


def record(program: str, directory: Path, *names: str) -> Diagnosis:
    """Record the traces of both ranks of a program, and diagnose them. `names` are `--group` patterns."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(PROGRAM), program, str(directory)]
    for _ in range(3):  # the profiler sometimes loses a call of gloo's threads
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        diagnosis = diagnose([read_rank(directory / f"rank{rank}.json") for rank in range(2)], read_groups(names))
        if not diagnosis.gaps:
            break
    assert diagnosis.gaps == (), "each of three recordings lacks calls"
    assert (diagnosis.steps, diagnosis.ranks, diagnosis.world, diagnosis.is_gpu) == (STEPS, (0, 1), 2, False)
    assert 0 < diagnosis.exposed < 1 and 0 < diagnosis.computing < 1
    return diagnosis


@pytest.mark.long
def test_a_ddp_program_over_gloo(tmp_path: Path) -> None:
    """The gradients of all parameters are reduced once per step, as the shapes in the trace show."""
    diagnosis = record("ddp", tmp_path)
    (row,) = diagnosis.rows
    assert (row.kind.dimension, row.kind.operation, row.kind.dtype) == ("DP", "all-reduce", "fp32")
    assert row.message_bytes == pytest.approx(4 * LAYERS * (WIDTH * WIDTH + WIDTH))
    assert row.calls > 1 and row.calls == pytest.approx(round(row.calls)), "the same number of buckets in each step"
    assert row.waiting is not None and row.exposed_waiting is not None
    assert 0 <= row.exposed_waiting <= row.waiting <= row.seconds
    assert 0 < row.exposed <= min(row.seconds, diagnosis.step_seconds)
    assert sentences(diagnosis)[0].startswith("Communication is exposed for ")


@pytest.mark.long
def test_an_fsdp_program_over_gloo(tmp_path: Path) -> None:
    """Each weight is gathered for both passes, and an all-reduce over gloo reduces each gradient."""
    rows = {row.kind.operation: row for row in record("fsdp", tmp_path).rows}
    nbytes = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    assert rows["all-gather"].message_bytes == pytest.approx(2 * nbytes)
    assert sum(row.message_bytes or 0 for name, row in rows.items() if "reduce" in name) == pytest.approx(nbytes)
    assert {row.kind.dimension for row in rows.values()} == {"DP"}


@pytest.mark.long
def test_a_tensor_parallel_program_over_gloo(tmp_path: Path) -> None:
    """Two pairs of layers sum activations in the forward pass, and one also in the backward pass."""
    (row,) = record("tensor", tmp_path, "default_pg=TP").rows
    assert (row.kind.dimension, row.kind.operation, row.calls) == ("TP", "all-reduce", 3)
    assert row.message_bytes == pytest.approx(3 * 4 * ROWS * WIDTH)


@pytest.mark.long
def test_a_pipeline_over_gloo(tmp_path: Path) -> None:
    """Activations and their gradients are sent once per micro-batch. The traces do not contain the stages."""
    (row,) = record("pipeline", tmp_path).rows
    assert (row.kind.dimension, row.kind.operation) == ("unknown", "send/receive")
    assert row.calls == 2 * MICRO_BATCHES and row.message_bytes == pytest.approx(2 * 4 * ROWS * WIDTH)
    (row,) = record("pipeline", tmp_path, "default_pg=PP").rows
    assert row.kind.dimension == "PP"


@pytest.mark.long
def test_a_program_without_profiler(tmp_path: Path) -> None:
    """The steps of an unchanged program are traced without the program's help."""
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
                "no rank has written a trace (a trace requires 8 steps of a torch.optim optimizer)"
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
        assert last[-1].startswith("hpcbench: no diagnosis is possible: a diagnosis requires 8 steps")
    else:
        assert last[0].startswith("hpcbench: Communication is exposed for ")
        assert "faster" in last[1] or "cannot pay" in last[1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rank-0.json", "rank-1.json"}
