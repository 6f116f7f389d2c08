"""Tests of the drafted site file, which is valid for all findings and contains all detected values and no others."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from machine import Machine, recorded

from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts
from hpcbench.batch.sites.check_site import check_file
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.cluster import Cluster, Said
from hpcbench.doctor.draft_site import draft, render
from hpcbench.errors import UserError


def site_of(text: str, directory: Path) -> Site:
    path = directory / "drafted.yaml"
    path.write_text(text, encoding="utf-8")
    assert check_file(path) == []
    return load_site(str(path))[0]


def change(recording: dict[str, str], command: str, old: str, new: str) -> dict[str, str]:
    assert old in recording[command]
    return {**recording, command: recording[command].replace(old, new)}


SHAPES = "sinfo --noheader --exact --format=%P|%D|%c|%X|%Y|%Z|%m|%G"
PARTITIONS = "scontrol --oneliner show partition"
CONFIG = "scontrol show config"
ASSOC = "sacctmgr --noheader --parsable2 show assoc where user=root format=Account,Partition,QOS,MaxSubmit"
QOS = "sacctmgr --noheader --parsable2 show qos format=Name,MaxWall,MaxSubmitPU,MaxJobsPU,MaxTRES,MaxTRESPU"
NVIDIA = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits"
SLURM = recorded("slurm-22.05")


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
    ("limits", "max_time", "expected"),
    [
        ("02:00:00|2|1|node=4|gres/gpu=16", "UNLIMITED", ("2h", 4, 2)),
        ("2-00:00:00||||", "12:00:00", ("12h", 40, None)),
        ("|||cpu=192|", "1-00:00:00", ("1d", 3, None)),
        ("||||gres/gpu=9,mem=4T", "1-00:00:00", ("1d", 2, None)),
        ("|||gres/gpu:h100=20,gres/gpu:v100=4|", "1-00:00:00", ("1d", 5, None)),
    ],
    ids=["all", "the partition's time is shorter", "cores", "GPUs of a user", "GPUs of a model"],
)
@pytest.mark.parametrize("of", ["partition", "job"])
def test_limits_of_the_quality_of_service(
    machine: Machine, tmp_path: Path, limits: str, max_time: str, expected: tuple[str, int, int | None], of: str
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


def test_a_coral_machine(machine: Machine, tmp_path: Path) -> None:
    machine.answers(recorded("lsf-jsrun"))
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.site, site.scheduler.kind, site.scheduler.account_option) == ("summit", "lsf", "-P")
    assert (site.scheduler.allocation, site.launcher.kind, site.scheduler.gpu_request) == ("nodes", "jsrun", "none")
    assert {name: queue.max_walltime for name, queue in site.queues.items()} == {"batch": "1d", "killable": "1d"}
    assert (site.scheduler.max_array, site.walltime) == (1000, "2h")
    node = site.node
    assert (node.cores, node.gpus, node.sockets, node.memory_gb) == (42, 6, 2, 606)
    assert "maintenance is left out (closed)" in text and "batch: on hosts computes/" in text


def test_exclusive_hosts_are_requested_only_if_the_queue_allows_them(machine: Machine, tmp_path: Path) -> None:
    plain = {line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")}
    machine.answers({line: text.replace(" EXCLUSIVE", "") for line, text in plain.items()})
    text = draft()
    assert site_of(text, tmp_path).scheduler.directives == {}
    assert "the queue is not EXCLUSIVE, so -x is refused, and other jobs may share the hosts" in " ".join(text.split())


def test_a_variant_of_lsf_is_asked_by_its_own_options(machine: Machine, tmp_path: Path) -> None:
    plain = {line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")}
    parameters = "\nSystem default:\nMaximum size of a job array:  500\n"
    recording = {line: text for line, text in plain.items() if line != "bparams -a"}
    name = "OpenLava 2.2, Nov 2014\n\nMy cluster name is lava\nMy master name is m1\n"
    machine.answers({**recording, "bparams -l": parameters, "lsid": name})
    machine.script("bsub", f"cat >&2 <<'END'\n{OLD_HELP}\nEND\nexit 255")
    site = site_of(draft(), tmp_path)
    assert site.scheduler.max_array == 500  # this variant refuses bparams -a
    assert site.scheduler.refuses == ["-wa", "-wt", "-rn", "-cwd", "-ti"]


OLD_HELP = """Usage: bsub [-h] [-V] [-x] [-H] [-r] [-N] [-B] [-I | -K | -Ip | -Is]
\t\t[-L login_shell] [-c cpu_limit[/host_spec]] [-W run_limit[/host_spec]] [-P project_name]
\t\t[-q queue_name ...] [-R res_req] [-n min_processors[,max_processors]] [-J job_name]
\t\t[-o out_file] [-e err_file] [-w depend_cond] [-sp priority] [command [argument ...]]"""
NEW_HELP = """bsub [options] command
-r | -rn
-cwd "current_working_directory"
-J job_name | -J "job_name[index_list]%job_slot_limit"
-n min_tasks[,max_tasks]
-o output_file
-q "queue_name ..."
-R "res_req" [-R "res_req" ...]
-ti
-W [hour:]minute[/host_name]
-w 'dependency_expression'
-wa 'signal'
-wt '[hour:]minute'"""


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (OLD_HELP, ["-wa", "-wt", "-rn", "-cwd", "-ti"]),
        (NEW_HELP, []),
        (NEW_HELP.replace("-ti\n", ""), ["-ti"]),
        (NEW_HELP.replace("\n-", ", -"), []),
        ("bsub: see the manual", []),
    ],
    ids=["old", "new", "without -ti", "on one line", "no list"],
)
def test_options_that_bsub_does_not_list_are_left_out_for_every_product(
    machine: Machine, tmp_path: Path, text: str, refused: list[str]
) -> None:
    machine.answers({line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")})
    machine.script("bsub", f"cat <<'END'\n{text}\nEND")
    drafted = draft()
    site = site_of(drafted, tmp_path)
    assert site.scheduler.refuses == refused
    assert ("bsub -h lists no options" in " ".join(drafted.split())) == ("manual" in text)
    assert {queue.max_nodes for queue in site.queues.values()} == {3}  # hosts of this kind


def test_an_lsf_cluster_without_jsrun(machine: Machine, tmp_path: Path) -> None:
    machine.answers({line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")})
    machine.answers({"mpirun --version": "mpirun (IBM Spectrum MPI) 10.3.1.02rtm0"})
    site = site_of(draft(), tmp_path)
    assert (site.scheduler.allocation, site.scheduler.gpu_request, site.launcher.kind) == ("slots", "gpu", "openmpi")


PLAIN_LSF = {line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")}
_LIMITS = "MAXIMUM LIMITS:\n RUNLIMIT\n 1440.0 min"


@pytest.mark.parametrize(
    ("old", "new", "most"),
    [
        (_LIMITS, "MAXIMUM LIMITS:\n RUNLIMIT                TASKLIMIT\n 1440.0 min of h41n01    1 4 126", 3),
        (_LIMITS, "MAXIMUM LIMITS:\n RUNLIMIT\n 1440.0 min\n\n TASKLIMIT\n 84", 2),
        (_LIMITS, "MAXIMUM LIMITS:\n RUNLIMIT     PROCLIMIT\n 1440.0 min   2 20", 1),
        ("Open:Active       -    -    -    -  9216", "Open:Active     200   90    -    -  9216", 2),
        ("HOSTS:  computes/", "HOSTS:  computes/\nRES_REQ:  select[ngpus>0] span[hosts=1]", 1),
        ("HOSTS:  computes/", "HOSTS:  computes/\nRES_REQ:  span[ptile=4]", 3),
    ],
    ids=["TASKLIMIT", "of its own", "PROCLIMIT", "slots of a user", "one host", "all hosts"],
)
def test_nodes_of_an_lsf_queue_by_its_slots(
    machine: Machine, tmp_path: Path, old: str, new: str, most: int | None
) -> None:
    machine.answers(change(PLAIN_LSF, "bqueues -l", old, new))
    queue = site_of(draft(), tmp_path).queues["batch"]
    assert (queue.max_nodes, queue.max_walltime) == (most, "1d")


def test_slot_limits_do_not_limit_jobs_of_whole_nodes(machine: Machine, tmp_path: Path) -> None:
    machine.answers(recorded("lsf-jsrun"))
    assert site_of(draft(), tmp_path).queues["killable"].max_nodes == 3  # all hosts of its kind


def test_gpus_of_lsf_hosts_in_mig_mode_are_not_counted(machine: Machine, tmp_path: Path) -> None:
    hosts = PLAIN_LSF["lshosts -gpu"].splitlines()
    table = [
        f"{hosts[0]}    vendor mig",
        *(f"{row} Nvidia {'Y' if 7 <= k < 13 else 'N'}" for k, row in enumerate(hosts[1:], 1)),
    ]
    machine.answers({**PLAIN_LSF, "lshosts -gpu": "\n".join(table)})
    text = draft()
    assert site_of(text, tmp_path).node.gpus == 6 and "# of batch: 2 nodes, 42 cores, 6 GPUs" in text
    assert "lshosts -gpu: h41n02: its GPUs are in MIG mode and not counted" in " ".join(text.split())


def test_llnl_has_lrun(machine: Machine, tmp_path: Path) -> None:
    machine.answers({**recorded("lsf-jsrun"), "lrun --help": ""})
    site = site_of(draft(), tmp_path)
    assert (site.scheduler.account_option, site.launcher.kind) == ("-G", "lrun")


def test_a_flux_machine(machine: Machine, tmp_path: Path) -> None:
    machine.answers(recorded("flux"))
    site = site_of(draft("tuolumne"), tmp_path)
    assert (site.site, site.scheduler.kind, site.launcher.kind) == ("tuolumne", "flux", "flux")
    assert (site.node.cores, site.node.gpus) == (96, 4)
    assert {name: (queue.max_nodes, queue.max_walltime) for name, queue in site.queues.items()} == {
        "pbatch": (512, "1d"),
        "pdebug": (None, "1h"),
    }


def test_a_flux_that_prints_no_limits(machine: Machine, tmp_path: Path) -> None:
    recording = {line: text for line, text in recorded("flux").items() if "limits" not in line}
    machine.answers({**recording, "flux queue list -no {queue}|||": "pbatch|||\npdebug|||\n"})
    text = draft("elcap")
    assert list(site_of(text, tmp_path).queues) == ["pbatch", "pdebug"]
    assert "limits of queues are unknown" in text


def test_no_scheduler_at_all(machine: Machine, tmp_path: Path) -> None:
    machine.answers({NVIDIA: "NVIDIA A2, 15356, 550.1\nNVIDIA A2, 15356, 550.1"})
    machine.answers({"mpiexec --version": "mpirun (Open MPI) 4.1.4"})
    text = draft()
    site = site_of(text, tmp_path)
    assert (site.scheduler.kind, site.launcher.kind, site.python, site.node.cores) == (
        "local",
        "openmpi",
        "auto",
        "auto",
    )
    assert (site.node.gpu, site.node.gpu_memory_gb) == ("NVIDIA A2", 14)
    assert "slurm: scontrol is not on PATH" in text


@pytest.mark.parametrize("program", ["sinfo", "sacctmgr", "srun"])
def test_a_client_that_hangs_leaves_out_only_its_own_values(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    machine.answers(SLURM)
    machine.script(program, "sleep 1000")
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 0.5)
    site = site_of(draft("elsewhere"), tmp_path)
    assert site.scheduler.kind == "slurm" and list(site.queues) == ["debug", "long"]


def test_modules_that_are_loaded(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADEDMODULES", "craype-network-ofi:cray-mpich/8.1.28:xalt/2.1:cudatoolkit/12.2")
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", "1")
    machine.answers(SLURM)
    text = draft()
    site = site_of(text, tmp_path)
    assert site.modules == ["craype-network-ofi", "cray-mpich/8.1.28", "cudatoolkit/12.2"]
    assert "also loaded here: xalt/2.1" in text
    assert site.gpu_aware_mpi is None and "MPICH_GPU_SUPPORT_ENABLED is 1 here" in text


def test_an_invalid_name_is_refused(machine: Machine) -> None:
    with pytest.raises(UserError, match="--name 'a b': is not a valid name of a site"):
        draft("a b")


_texts = st.text(string.printable + "é\u2028\x85\x00#:'\"{}[]$`", max_size=30)
_small = st.none() | st.integers(0, 9)
_nodes = st.builds(
    Nodes,
    count=st.integers(0, 9),
    cores=_small,
    sockets=st.none() | st.integers(1, 9),
    threads=st.none() | st.integers(1, 4),
    memory_gb=st.none() | st.integers(1, 999),
    gpus=_small,
    gpu=st.none() | _texts.filter(str.strip),
    socket_gpus=st.none() | st.lists(st.integers(0, 4), max_size=3).map(tuple),
)
_walltimes = st.none() | st.sampled_from(["30m", "1h", "2d", "45s"])
_lines = st.builds(
    QueueFacts,
    name=st.sampled_from(["batch", "yes", "12", "1e3", "null", "-x", "a b", "", "x.y_z-1"]) | _texts,
    source=_texts,
    nodes=st.lists(_nodes, max_size=3),
    default=st.booleans(),
    open=st.booleans(),
    min_nodes=st.none() | st.integers(1, 3),
    max_nodes=st.none() | st.integers(3, 9),
    max_walltime=_walltimes,
    max_submitted=st.none() | st.integers(1, 99),
    notes=st.lists(_texts, max_size=2),
)
_schedulers = {
    "slurm": {"account_option": Said("--account", ""), "directives": Said({"--exclusive": None, "--mem": 0}, "x")},
    "lsf": {"account_option": Said("-P", ""), "allocation": Said("slots", ""), "directives": Said({"-x": None}, "x")},
    "flux": {"account_option": Said("--bank", "")},
}


@given(
    st.sampled_from(sorted(_schedulers)),
    st.none() | _texts,
    st.lists(_lines, max_size=4),
    st.lists(_texts, max_size=2),
    _texts,
)
@settings(
    max_examples=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_draft_is_valid_for_every_finding(
    machine: Machine, tmp_path: Path, kind: str, name: str | None, lines: list[QueueFacts], notes: list[str], fact: str
) -> None:
    unique = list({line.name: line for line in lines}.values())
    cluster = Cluster(kind, fact, name, unique, dict(_schedulers[kind]), notes)
    site = site_of(render(cluster), tmp_path)
    assert site.scheduler.kind == kind and set(site.queues) <= {line.name for line in unique if line.open}
