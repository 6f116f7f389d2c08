"""Tests of the nodes in drafted site files for Slurm: GPUs, their models and slices, and cores."""

import re
from pathlib import Path

import pytest
from machine import SHAPES, SLURM, Machine, change, site_of

from hpcbench.doctor.draft_site import draft


@pytest.mark.parametrize(
    ("row", "cores", "threads"),
    [("4|128|2|32|2|1|g", 64, 2), ("4|64|2|32|2|1|g", 64, 1), ("4|60|2|32|1|1|g", 60, 1)],
    ids=["CPUs are threads", "CPUs are cores", "fewer CPUs than cores"],
)
def test_slurms_cpus_are_cores_or_threads(machine: Machine, tmp_path: Path, row: str, cores: int, threads: int) -> None:
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", row.replace("g", "gpu:4")))
    node = site_of(draft(), tmp_path).node
    assert (node.cores, node.threads_per_core) == (cores, threads)


def test_three_gpus_on_two_sockets(machine: Machine, tmp_path: Path) -> None:
    gres = "gpu:a100:1(S:0),gpu:a100:2(S:1)"
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", f"4|128|2|64|1|16000|{gres}"))
    node = site_of(draft(), tmp_path).node
    assert (node.gpus, node.gpu, node.socket_gpus) == (3, "a100", [1, 2])


_MARKED_GPUS = re.compile(r"# CHECK: sinfo: .*\n(\s*#.*\n)*  gpus: |^  gpus: \d+ +# CHECK", re.MULTILINE)


@pytest.mark.parametrize(
    ("gres", "gpus", "model", "request_"),
    [
        ("gpu:ampere:6(S:0-1),gpu:1g.10gb:28(S:0-1)", 6, "ampere", "gpu:ampere:6"),
        ("gpu:a100_3g.20gb:4,gpu:a100_mig_1g_5gb:7(S:0,1),gpu:a100:2", 2, "a100", "gpu:a100:2"),
        ("gpu:nvidia_h100_1g.12gb+me:7,gpu:h100:7", 7, "h100", "gpu:h100:7"),
        ("gpu:turing:1,gpu:ampere:3,gpu:1g.5gb:7", 4, "turing and ampere", "gpu:turing:1,gpu:ampere:3"),
    ],
    ids=["profiles", "other names of them", "with media engines", "next to two models"],
)
def test_slices_of_gpus_are_not_counted(
    machine: Machine, tmp_path: Path, gres: str, gpus: int, model: str, request_: str
) -> None:
    """If a request names no GPU model, Slurm could satisfy it with MIG slices."""
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", f"4|64|2|32|1|385411|{gres}"))
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.node.gpus, site.node.gpu) == (gpus, model)
    assert _MARKED_GPUS.search(text) and "MIG slices" in text
    assert (site.scheduler.gpu_request, site.scheduler.directives["--gres"]) == ("none", request_)


@pytest.mark.parametrize(
    ("gres", "model", "advice"),
    [
        ("gpu:turing:1,gpu:ampere:3", "turing and ampere", "gpus: 3 and --gres=gpu:ampere:3"),
        ("gpu:v100:3(S:0),gpu:a100:1(S:1)", "v100 and a100", "gpus: 3 and --gres=gpu:v100:3"),
        ("gpu:2,gpu:a100:2", "a100", "gpus: 2 and --gres=gpu:a100:2"),
    ],
)
def test_two_models_in_a_node_are_marked(machine: Machine, tmp_path: Path, gres: str, model: str, advice: str) -> None:
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", f"4|64|2|32|1|385411|{gres}"))
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.node.gpus, site.node.gpu, site.scheduler.gpu_request) == (4, model, "gres")
    assert _MARKED_GPUS.search(text)
    assert f"to use one of them, write {advice}" in " ".join(text.replace("#", "").split())


@pytest.mark.parametrize(
    ("gres", "gpus", "model"),
    [
        ("craynetwork:4,vgpu:8,gpu:h100:4(S:0-1),shard:h100:32(S:0-1),nvme:1", 4, "h100"),
        ("gpu:3090:2,mps:400", 2, "3090"),
        ("gpu:tesla:no_consume:4(IDX:0-3)", 4, "tesla"),
        ("gpu:a100-40g:4", 4, "a100-40g"),
        ("gpu:rtx6000", 1, "rtx6000"),
        ("gpu", 1, None),
    ],
)
def test_whole_gpus_of_one_model_are_certain(
    machine: Machine, tmp_path: Path, gres: str, gpus: int, model: str | None
) -> None:
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", f"4|64|2|32|1|385411|{gres}"))
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.node.gpus, site.node.gpu, site.scheduler.gpu_request) == (gpus, model, "gres")
    assert re.search(r"^  gpus: \d+ +# sinfo$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("gres", "device", "advice"),
    [
        ("gpu:mi250x:8", "cpu", "for a study of your own program on these GPUs, write cuda"),
        ("gpu:h100:8", "cuda", "write cpu to measure without them"),
        ("gpu:8", "cuda", "write cpu to measure without them, or if they are by AMD (docs/how-to/amd.md)"),
    ],
)
def test_the_device_is_marked_and_explained(
    machine: Machine, tmp_path: Path, gres: str, device: str, advice: str
) -> None:
    machine.answers(change(SLURM, SHAPES, "4|8|1|8|1|16000|gpu:fake:4", f"4|64|2|32|1|385411|{gres}"))
    text = draft()
    assert site_of(text, tmp_path).device == device
    on_one_line = " ".join(text.replace("#", "").split())
    assert re.search(rf"CHECK: [^:]*{re.escape(advice)}", on_one_line), on_one_line


def test_a_node_of_slices_alone_has_no_gpus(machine: Machine, tmp_path: Path) -> None:
    row = "4|8|1|8|1|16000|gpu:fake:4"
    recording = change(SLURM, SHAPES, row, "4|8|1|8|1|16000|gpu:1g.5gb:28")
    machine.answers({**recording, SHAPES: recording[SHAPES].replace("|gpu:fake:4", "|gpu:2g.10gb:12")})
    text = draft()
    assert site_of(text, tmp_path).node.gpus == 0
    assert "CHECK: sinfo: MIG slices (28 1g.5gb) are not counted" in text


def test_limits_count_the_nodes_that_are_described(machine: Machine, tmp_path: Path) -> None:
    """Slurm accepts a job of 50 nodes with 4 GPUs each, but never starts it."""
    rows = (
        "debug*|100|64|2|32|1|256000|(null)\ndebug*|2|128|2|64|1|520000|gpu:a100:4(S:0-1)\n"
        "debug*|3|128|2|64|1|510000|gpu:a100:4(S:0-1)\ndebug*|4|40|2|20|1|310000|gpu:a100:2(S:0-1)"
    )
    machine.answers(change(SLURM, SHAPES, "debug*|4|8|1|8|1|16000|gpu:fake:4", rows))
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.node.cores, site.node.gpus, site.queues["debug"].max_nodes) == (128, 4, 5)
    assert site.node.memory_gb == 498, "the smallest memory of nodes that differ only in memory"
    assert "debug: it also contains 100 nodes, 64 cores" in " ".join(text.split())
