"""Tests of drafted site files for Slurm: partitions, limits, accounts and launchers."""

import re
from pathlib import Path

import pytest
from machine import ASSOC, CONFIG, PARTITIONS, QOS, SHAPES, SLURM, Machine, change, site_of

from hpcbench.doctor.draft_site import draft


def test_a_slurm_cluster(machine: Machine, tmp_path: Path) -> None:
    machine.answers(SLURM)
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.site, site.scheduler.kind, site.scheduler.account_option) == ("hbtest", "slurm", "--account")
    assert list(site.queues) == ["debug", "long"]
    assert [queue.max_walltime for queue in site.queues.values()] == ["1h", "1d"]
    assert site.scheduler.max_array == 1000, "MaxArraySize is one above the largest index"
    assert (site.node.gpus, site.node.cores, site.node.sockets, site.node.threads_per_core) == (4, 8, 1, 1)
    assert site.scheduler.directives == {"--exclusive": None, "--mem": 0}
    assert site.scheduler.gpu_request == "gres"
    assert site.gpu_aware_mpi is None and site.checked == "never" and site.device == "cuda"
    assert re.search(r"account_option: --account +# .*your accounts are root", text)


def test_nodes_of_other_kinds_are_left_out_and_named(machine: Machine, tmp_path: Path) -> None:
    recording = change(SLURM, SHAPES, "long|1|8|1|8|1|16000|gpu:fake:4", "long|90|256|2|64|2|512000|(null)")
    machine.answers(recording)
    text = draft()
    assert list(site_of(text, tmp_path).queues) == ["debug"]
    assert "# long is left out (other nodes: 90 nodes, 128 cores, 500 GB)" in text


def test_a_partition_with_gpus_comes_before_the_default_one(machine: Machine, tmp_path: Path) -> None:
    recording = change(SLURM, SHAPES, "debug*|4|8|1|8|1|16000|gpu:fake:4", "debug*|90|256|2|64|2|512000|(null)")
    machine.answers(recording)
    site = site_of(draft(), tmp_path)
    assert (list(site.queues), site.node.gpus, site.node.cores) == (["long"], 4, 8)


def test_limits_of_partitions(machine: Machine, tmp_path: Path) -> None:
    recording = change(
        SLURM,
        PARTITIONS,
        "MaxNodes=UNLIMITED MaxTime=01:00:00 MinNodes=0",
        "MaxNodes=64 MaxTime=UNLIMITED MinNodes=2",
    )
    recording = change(recording, SHAPES, "debug*|4|", "debug*|90|")
    recording = change(recording, PARTITIONS, "OverSubscribe=NO", "OverSubscribe=EXCLUSIVE")
    recording = change(recording, CONFIG, "CR_CORE_MEMORY", "CR_CORE")
    site = site_of((machine.answers(recording), draft())[1], tmp_path)
    queue = site.queues["debug"]
    assert (queue.min_nodes, queue.max_nodes, queue.max_walltime, site.walltime) == (2, 64, None, None)
    assert site.scheduler.directives == {}, "nodes are exclusive, with all their memory"


def test_a_partition_without_a_limit_has_no_more_than_its_nodes(machine: Machine, tmp_path: Path) -> None:
    """Slurm accepts a larger job, but never starts it."""
    machine.answers(SLURM)
    assert site_of(draft(), tmp_path).queues["debug"].max_nodes == 4


def test_cores_reserved_for_the_system_are_noted(machine: Machine, tmp_path: Path) -> None:
    machine.answers(change(SLURM, "scontrol --oneliner show node n1", "CPUEfctv=8", "CPUEfctv=6 CoreSpecCount=2"))
    text = draft()
    site_of(text, tmp_path)
    assert "CoreSpecCount=2" in text


@pytest.mark.parametrize(
    ("banner", "default", "launcher"),
    [
        ("HYDRA build details:\n    Version:                                 4.1.2", "none", ("srun", ["--mpi=pmi2"])),
        ("mpirun (Open MPI) 5.0.1", "none", ("srun", ["--mpi=pmix"])),
        ("mpirun (Open MPI) 5.0.1", "pmix", ("srun", [])),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "none", ("srun", ["--mpi=pmi2"])),
    ],
    ids=["MPICH", "Open MPI", "Slurm has a default", "Intel"],
)
def test_the_draft_selects_the_mpi_plugin_of_srun(
    machine: Machine, tmp_path: Path, banner: str, default: str, launcher: tuple[str, list[str]]
) -> None:
    machine.answers(change(SLURM, CONFIG, "MpiDefault              = none", f"MpiDefault = {default}"))
    machine.answers({"mpiexec --version": banner})
    site = site_of(draft(), tmp_path)
    assert (site.launcher.kind, site.launcher.args) == launcher


def test_tacc_has_ibrun(machine: Machine, tmp_path: Path) -> None:
    machine.answers({**SLURM, "ibrun --help": ""})
    assert site_of(draft(), tmp_path).launcher.kind == "ibrun"


def test_slurm_without_accounting(machine: Machine, tmp_path: Path) -> None:
    recording = {line: text for line, text in SLURM.items() if not line.startswith("sacctmgr")}
    machine.answers({**recording, "sacctmgr nothing": ""})
    text = draft()
    site = site_of(text, tmp_path)
    assert site.scheduler.max_submitted is None
    assert "CHECK: Slurm's option; your accounts are unknown: sacctmgr ended with status 3" in " ".join(
        text.replace("#", "").split()
    )


def test_limits_of_an_association_and_a_quality_of_service(machine: Machine, tmp_path: Path) -> None:
    recording = SLURM
    recording = change(
        recording,
        ASSOC,
        "root||normal|",
        "proj_g||normal|50\nother||normal|20",
    )
    recording = change(
        recording,
        QOS,
        "normal|||||",
        "normal|||||\nlongq|2-00:00:00|8|2|node=16|",
    )
    recording = change(recording, PARTITIONS, "QoS=N/A", "QoS=longq")
    machine.answers(recording)
    text = draft()
    site = site_of(text, tmp_path)
    assert site.scheduler.max_submitted == 20
    assert site.queues["debug"].max_submitted == 8
    assert "proj_g, other" in text and "MaxWall 2-00:00:00" in text


@pytest.mark.parametrize(
    ("of", "limits", "max_time", "expected"),
    [
        ("partition", "02:00:00|2|1|node=4|gres/gpu=16", "UNLIMITED", ("2h", 4, 2)),
        ("job", "02:00:00|2|1|node=4|gres/gpu=16", "UNLIMITED", ("2h", 4, 2)),
        ("partition", "2-00:00:00||||", "12:00:00", ("12h", 40, None)),
        ("job", "|||cpu=192|", "1-00:00:00", ("1d", 3, None)),
        ("partition", "||||gres/gpu=9,mem=4T", "1-00:00:00", ("1d", 2, None)),
        ("job", "|||gres/gpu:h100=20,gres/gpu:v100=4|", "1-00:00:00", ("1d", 5, None)),
    ],
)
def test_limits_of_the_quality_of_service(
    machine: Machine, tmp_path: Path, of: str, limits: str, max_time: str, expected: tuple[str, int, int | None]
) -> None:
    recording = change(SLURM, SHAPES, "debug*|4|8|1|8|1|16000|gpu:fake:4", "debug*|40|64|2|32|1|512000|gpu:h100:4")
    recording = change(recording, QOS, "normal|||||", f"normal|||||\nshort|{limits}")
    recording = change(recording, PARTITIONS, "MaxTime=01:00:00", f"MaxTime={max_time}")
    if of == "partition":
        recording = change(recording, PARTITIONS, "QoS=N/A", "QoS=short")
    else:
        recording = change(recording, ASSOC, "root||normal|", "root||short|")
    machine.answers(recording)
    site = site_of(draft(), tmp_path)
    queue = site.queues["debug"]
    assert (queue.max_walltime, queue.max_nodes, queue.max_submitted) == expected
    assert queue.source is not None and "sacctmgr show qos" in queue.source


def test_the_partitions_quality_of_service_overrides_the_jobs(machine: Machine, tmp_path: Path) -> None:
    recording = change(SLURM, QOS, "normal|||||", "normal|00:30:00|5|||\nlong|1-00:00:00||||")
    recording = change(recording, PARTITIONS, "MaxTime=01:00:00", "MaxTime=UNLIMITED")
    machine.answers(change(recording, PARTITIONS, "QoS=N/A", "QoS=long"))
    queue = site_of(draft(), tmp_path).queues["debug"]
    assert (queue.max_walltime, queue.max_submitted) == ("1d", 5)


@pytest.mark.parametrize(
    ("rule", "accounts", "why"),
    [
        ("AllowAccounts=staff,admins", "proj1||normal|", "AllowAccounts=staff,admins, and your accounts are proj1"),
        ("AllowQos=vip", "proj1||normal,long|", "AllowQos=vip, and your qualities of service are long, normal"),
        ("AllowGroups=nobodys-group", "proj1||normal|", "AllowGroups=nobodys-group, and your groups are"),
        ("DenyAccounts=proj1", "proj1||normal|", "DenyAccounts=proj1, and your accounts are proj1"),
        ("AllowAccounts=ALL", "proj1|long|normal|", "your associations are for long"),
        ("ReqResv=YES", "proj1||normal|", "ReqResv=YES: it needs a reservation"),
    ],
)
def test_a_partition_that_is_closed_to_the_user_is_not_the_default(
    machine: Machine, tmp_path: Path, rule: str, accounts: str, why: str
) -> None:
    key = rule.partition("=")[0]
    line = next(line for line in SLURM[PARTITIONS].splitlines() if "=debug " in line)
    barred = re.sub(rf"{key}=\S+", rule, line) if f" {key}=" in line else f"{line} {rule}"
    recording = change(change(SLURM, PARTITIONS, line, barred), ASSOC, "root||normal|", accounts)
    machine.answers(recording)
    text = draft()
    assert list(site_of(text, tmp_path).queues) == ["long", "debug"]
    assert f"debug: closed to you: {why}" in " ".join(text.replace("#", "").split())


@pytest.mark.parametrize("rule", ["AllowAccounts=staff,proj1", "AllowQos=vip,normal", "DenyAccounts=proj1"])
def test_a_partition_that_one_account_may_use_is_open(machine: Machine, tmp_path: Path, rule: str) -> None:
    key = rule.partition("=")[0]
    line = next(line for line in SLURM[PARTITIONS].splitlines() if "=debug " in line)
    ruled = re.sub(rf"{key}=\S+", rule, line) if f" {key}=" in line else f"{line} {rule}"
    recording = change(change(SLURM, PARTITIONS, line, ruled), ASSOC, "root||normal|", "proj1||normal|\nproj2||normal|")
    machine.answers(recording)
    text = draft()
    assert list(site_of(text, tmp_path).queues) == ["debug", "long"]
    assert f"debug: {rule}" in text and "closed to you" not in text


def test_names_of_partitions(machine: Machine, tmp_path: Path) -> None:
    def named(name: str) -> str:
        recording = {command: text.replace("debug", name) for command, text in SLURM.items()}
        machine.answers({command.replace("debug", name): text for command, text in recording.items()})
        return draft()

    for name in ("gpu_h100+long@2025", "yes", "12", "1e3", "null"):
        assert list(site_of(named(name), tmp_path).queues) == [name, "long"]
    text = named("gpu#1")
    assert list(site_of(text, tmp_path).queues) == ["long"]
    assert "gpu#1 is left out (not a valid queue name in a site file" in text
