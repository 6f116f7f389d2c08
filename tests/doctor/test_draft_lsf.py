"""Tests of drafted site files for LSF and Flux."""

from pathlib import Path

import pytest
from machine import PLAIN_LSF, Machine, change, recorded, site_of

from hpcbench.doctor.draft_site import draft

_LIMITS = "MAXIMUM LIMITS:\n RUNLIMIT\n 1440.0 min"


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
    machine.answers({line: text.replace(" EXCLUSIVE", "") for line, text in PLAIN_LSF.items()})
    text = draft()
    assert site_of(text, tmp_path).scheduler.directives == {}
    assert "the queue is not EXCLUSIVE, so -x is refused, and other jobs may share the hosts" in " ".join(text.split())


def test_a_variant_of_lsf_is_asked_by_its_own_options(machine: Machine, tmp_path: Path) -> None:
    parameters = "\nSystem default:\nMaximum size of a job array:  500\n"
    recording = {line: text for line, text in PLAIN_LSF.items() if line != "bparams -a"}
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
    machine.answers(PLAIN_LSF)
    machine.script("bsub", f"cat <<'END'\n{text}\nEND")
    drafted = draft()
    site = site_of(drafted, tmp_path)
    assert site.scheduler.refuses == refused
    assert ("bsub -h lists no options" in " ".join(drafted.split())) == ("manual" in text)
    assert {queue.max_nodes for queue in site.queues.values()} == {3}  # hosts of this kind


def test_an_lsf_cluster_without_jsrun(machine: Machine, tmp_path: Path) -> None:
    machine.answers(PLAIN_LSF)
    machine.answers({"mpirun --version": "mpirun (IBM Spectrum MPI) 10.3.1.02rtm0"})
    site = site_of(draft(), tmp_path)
    assert (site.scheduler.allocation, site.scheduler.gpu_request, site.launcher.kind) == ("slots", "gpu", "openmpi")


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
