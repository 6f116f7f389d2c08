"""Tests of the notes about GPUs that the jobs do not use, and about schemes that the GPUs of a site cannot run."""

from pathlib import Path

import pytest

from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

SITE = """\
site: mine
scheduler: {{kind: slurm}}
node: {{gpus: 8, gpu: {gpu}, cores: 64}}
launcher: {{kind: srun}}
ranks_per_node: 8
device: {device}
checked: never
"""
PROGRAM = """\
study: s
walltime: 1h
nodes: 2
program: {{command: python t.py, log: nanogpt, steps: 20, groups: {groups}}}
matrix: {{scheme: [baseline, tree, {scheme}]}}
schemes:
  tree: {{environment: {{NCCL_ALGO: Tree}}}}
  ring: {{algorithm: ring}}
  between: {{rules: [{{dimension: DP, codec: "int8:256", between_nodes: true}}]}}
"""
ENGINE = """\
study: s
walltime: 1h
nodes: 2
model: gpt-tiny
train: {steps: 20, global_batch: 16}
matrix: {scheme: [baseline, naive-int8]}
"""


def notes(tmp_path: Path, study: str, device: str, gpu: str = "NVIDIA H100") -> list[str]:
    site_file, study_file = tmp_path / "mine.yaml", tmp_path / "s.yaml"
    site_file.write_text(SITE.format(gpu=gpu, device=device))
    study_file.write_text(study)
    site, loaded = load_site(str(site_file))[0], load_study(study_file)
    _, lines = plan(expand(loaded, site.capacity, offer(site)), loaded, site, dry_run=True)
    return [line for line in lines if "GPU" in line or ("NCCL" in line and "NCCL_ALGO" not in line)]


def program(scheme: str = "naive-int8", groups: str = "{}") -> str:
    return PROGRAM.format(scheme=scheme, groups=groups)


def test_gpus_that_jobs_do_not_request_are_named(tmp_path: Path) -> None:
    (line,) = notes(tmp_path, program(), "cpu")
    assert line.startswith("jobs do not request the 8 GPUs of a node (device: cpu in the site file): if the program")
    (line,) = notes(tmp_path, ENGINE, "cpu")
    assert line.startswith("ranks compute on CPUs (device: cpu in the site file)")
    assert notes(tmp_path, program(), "cuda") == notes(tmp_path, ENGINE, "cuda") == []


@pytest.mark.parametrize("gpu", ["mi250x", "AMD Instinct MI300A", "Radeon Pro"])
def test_kernels_for_cuda_do_not_run_on_gpus_by_amd(tmp_path: Path, gpu: str) -> None:
    (line,) = notes(tmp_path, program(), "cuda", gpu)
    assert line.startswith("naive-int8: hpcbench's kernels need CUDA") and line.endswith("(`hpcbench schemes`)")
    (line,) = notes(tmp_path, ENGINE, "cuda", gpu)
    assert line.startswith("naive-int8: hpcbench's kernels need CUDA") and line.endswith("device: cpu in the site file")
    assert notes(tmp_path, program("rcclx-fp8"), "cuda", gpu) == []


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("auto-int8", "algorithm auto encodes no call"),
        ("naive-mpc", "calls with codec mpc stay exact, because its messages vary in size"),
        ("mzhybrid", "calls with codec mpc stay exact"),
        ("ring", "algorithm ring encodes no call"),
        ("between", "calls with a rule for between_nodes stay exact"),
    ],
)
def test_a_scheme_that_nccl_cannot_carry_is_named(tmp_path: Path, scheme: str, reason: str) -> None:
    (line,) = notes(tmp_path, program(scheme), "cuda")
    assert line.startswith(f"{scheme}: if the program uses NCCL, {reason}")
    assert notes(tmp_path, program(scheme, "{cuda: true}"), "cuda") == []
