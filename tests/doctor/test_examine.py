"""Tests of the doctor's checks, on machines that work, fail, or do not respond."""

import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from machine import Machine, recorded

import hpcbench
from hpcbench import cli
from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts
from hpcbench.batch.sites.met_ranks import have_met
from hpcbench.batch.sites.site import Site
from hpcbench.doctor import job_shell, place, probe, ranks, selftest, shell
from hpcbench.doctor.check import Check, Health
from hpcbench.doctor.cluster import Cluster
from hpcbench.doctor.examine import examine
from hpcbench.doctor.gpus import check_gpus
from hpcbench.doctor.match_site import check_match, marks
from hpcbench.doctor.mpi import mpiexec
from hpcbench.doctor.scheduler import answering, check_schedulers, sightings

CHECKOUT = Path(hpcbench.__file__).resolve().parent.parent


def local(**changes: object) -> Site:
    """Return a local site with some changes."""
    data = {"site": "here", "scheduler": {"kind": "local"}, "launcher": {"kind": "mpich"}, "python": "auto"}
    return Site.model_validate({**data, "oversubscribe": True, "checked": "never", **changes})


def lsf_site(directory: Path) -> str:
    """Write a site file whose ranks run in this interpreter, and return its path."""
    path = directory / "mine.yaml"
    path.write_text(
        "site: mine\nscheduler: {kind: lsf, account_option: -P}\nlauncher: {kind: jsrun}\nnode: {cores: 4}\n"
        f"python: {sys.executable}\nchecked: never\n"
    )
    return str(path)


def find_check(checks: list[Check], name: str) -> Check:
    (check,) = (check for check in checks if check.name == name)
    return check


def test_slurm_answers(machine: Machine) -> None:
    machine.answers(recorded("slurm-22.05"))
    seen = answering(sightings())
    assert seen is not None and (seen.kind, seen.name, seen.version) == ("slurm", "hbtest", "22.05.8")


def test_srun_on_path_does_not_prove_a_scheduler(machine: Machine) -> None:
    machine.script("srun", "echo a wrapper")
    seen = sightings()
    assert answering(seen) is None
    slurm = find_check(check_schedulers(seen, "slurm"), "scheduler slurm")
    assert slurm.failed and "may be a wrapper" in slurm.fact and slurm.remedy


@pytest.mark.parametrize("printed", ["Slurmctld(primary) at head is DOWN", ""], ids=["down", "silent"])
def test_a_controller_that_is_down(machine: Machine, printed: str) -> None:
    machine.script("scontrol", f"echo '{printed}'; exit 1")
    slurm = find_check(check_schedulers(sightings(), "slurm"), "scheduler slurm")
    assert slurm.health is Health.MISSING and slurm.failed


@pytest.mark.parametrize(("client", "kind"), [("scontrol", "slurm"), ("lsid", "lsf"), ("flux", "flux")])
def test_a_scheduler_whose_client_hangs_is_unknown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, client: str, kind: str
) -> None:
    machine.script(client, "sleep 1000 & sleep 1000")
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 0.3)
    check = find_check(check_schedulers(sightings(), kind), f"scheduler {kind}")
    assert check.health is Health.UNKNOWN and check.failed, "an unknown health counts as a failure"
    assert f"{client} did not answer within 0.3 s" in check.fact


def test_a_program_that_does_not_end_is_killed_with_its_children(machine: Machine, tmp_path: Path) -> None:
    machine.script("stubborn", f"trap '' TERM; sleep 1000 & echo $! > '{tmp_path}/child'; wait")
    number = tmp_path / "child"
    for seconds in (0.5, 2, 8):  # a busy machine may need more than half a second to start it
        outcome = attempt(["stubborn"], seconds=seconds)
        assert outcome.present and outcome.status is None
        if number.exists() and number.read_text().endswith("\n"):
            break
    child = Path("/proc", number.read_text().strip(), "stat")
    assert eventually(lambda: ended(child)), "a child process outlives its parent"


def ended(stat: Path) -> bool:
    """Return whether the process of this `/proc/.../stat` is gone or a zombie."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(holds: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a condition, and return whether it became true. On a busy machine, a killed process may end late."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_lsid_without_bsub(machine: Machine) -> None:
    machine.answers({"lsid": recorded("lsf-jsrun")["lsid"]})
    assert answering(sightings()) is None


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        ("echo 'batch daemon not responding ... still trying' >&2; sleep 1000", Health.UNKNOWN),
        ("echo 'Failed in an LSF library call: Communication time out' >&2; exit 255", Health.MISSING),
        ("echo 'LSF is down. Please wait ...' >&2", Health.MISSING),
    ],
    ids=["hangs", "fails", "says nothing"],
)
def test_an_lsf_whose_master_daemon_is_stopped_does_not_work(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, health: Health
) -> None:
    machine.answers(recorded("lsf-jsrun"))  # lsid asks another daemon, which runs
    machine.script("bqueues", answer)
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 0.5)
    seen = sightings()
    assert answering(seen) is None
    check = find_check(check_schedulers(seen, "lsf"), "scheduler lsf")
    assert check.health is health and check.failed
    assert "lsid answers, but the daemon that accepts jobs does not" in check.fact


def test_a_flux_broker_that_cannot_list_jobs_does_not_work(machine: Machine) -> None:
    answers = recorded("flux")
    del answers["flux jobs -n -c 1"]
    machine.answers(answers)
    assert answering(sightings()) is None
    assert find_check(check_schedulers(sightings(), "flux"), "scheduler flux").failed


def test_a_flux_instance_comes_before_the_slurm_that_started_it(machine: Machine) -> None:
    machine.answers({**recorded("slurm-22.05"), **recorded("flux")})
    seen = answering(sightings())
    assert seen is not None and seen.kind == "flux"


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        ("mpiexec (OpenRTE) 4.1.4", "openmpi"),
        ("prterun (PRRTE) 3.0.2", "openmpi"),
        ("mpirun (IBM Spectrum MPI) 10.3.1.02rtm0", "openmpi"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "mpich"),
        ("HYDRA build details:\n    Version:                                 5.0.2", "mpich"),
        ("something else", None),
    ],
)
def test_the_library_of_an_mpiexec_is_detected(machine: Machine, banner: str, kind: str | None) -> None:
    machine.answers({"mpiexec --version": banner})
    launcher = mpiexec()
    assert launcher is not None and launcher.kind == kind


def test_mvapich_is_detected_by_the_program_next_to_mpiexec(machine: Machine) -> None:
    machine.answers({"mpiexec --version": "HYDRA build details:\n    Version: 3.1.4", "mpiname -a": "MVAPICH2 2.3.7"})
    machine.script("mpiname", "echo MVAPICH2 2.3.7")
    launcher = mpiexec()
    assert launcher is not None and launcher.kind == "mvapich"


def test_gpus(machine: Machine) -> None:
    query = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits"
    machine.answers({query: "NVIDIA H200, 143771, 570.1\nNVIDIA H200, 143771, 570.1"})
    check = check_gpus(needed=True)
    assert check.health is Health.OK and check.fact == "2 x NVIDIA H200, 140 GB, driver 570.1"


def test_gpus_of_amd(machine: Machine) -> None:
    cards = {
        "card0": {"Card Series": "AMD Instinct MI300A", "VRAM Total Memory (B)": str(128 << 30)},
        "system": {"Driver version": "6.8"},
    }
    machine.answers({"rocm-smi --showproductname --showmeminfo vram --showdriverversion --json": json.dumps(cards)})
    assert check_gpus(needed=True).fact == "1 x AMD Instinct MI300A, 128 GB, driver 6.8"


def test_a_driver_that_was_updated_under_its_module_is_not_installed_again(machine: Machine) -> None:
    machine.script("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    check = check_gpus(needed=True)
    assert check.health is Health.MISSING and "version mismatch" in check.fact
    assert "reload the module, or reboot" in check.remedy and "install" not in check.remedy


def test_gpus_whose_driver_hangs_are_unknown(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.script("nvidia-smi", "sleep 1000")
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 0.3)
    assert check_gpus(needed=True).health is Health.UNKNOWN


def test_the_site_of_a_machine_is_detected() -> None:
    lassen = Cluster("lsf", "LSF", "lassen", [QueueFacts("pbatch", "", [Nodes(9, gpus=4)]), QueueFacts("pdebug", "")])
    (check,) = check_match(lassen, None)
    assert check.health is Health.OK and check.fact.startswith("lassen: 4 of 4 properties match")
    other = Cluster("lsf", "LSF", "elsewhere", lassen.queues)
    (check,) = check_match(other, None)
    assert check.health is Health.MISSING and "--draft-site" in check.remedy
    slurm = local(scheduler={"kind": "slurm"}, launcher={"kind": "srun"}, node={"cores": 4}, python="python3")
    assert not marks(slurm, lassen)["scheduler"]
    assert check_match(lassen, slurm)[0].failed
    lsf = {"scheduler": {"kind": "lsf"}, "launcher": {"kind": "jsrun"}, "node": {"cores": 4}, "python": "python3"}
    assert check_match(lassen, local(**lsf))[0].health is Health.UNKNOWN, "too few properties to compare"
    mine = local(**lsf, queues={"pbatch": {}})
    assert check_match(other, mine)[0].health is Health.UNKNOWN, "nodes have another number of GPUs"
    named_by_its_owner = local(**{**lsf, "node": {"cores": 4, "gpus": 4}}, queues={"pbatch": {}})
    assert check_match(other, named_by_its_owner)[0].health is Health.OK


def test_the_ranks_interpreter_and_two_ranks() -> None:
    site = local()
    checks = [*ranks.check_interpreter(site), *ranks.check_launchers(site), *ranks.check_world(site, run=False)]
    working = {check.name for check in checks if check.health is Health.OK}
    assert working >= {"hpcbench", "numpy", "kernels", "codecs", "mpi4py", "torch"}
    assert find_check(checks, "two ranks").health is Health.OK
    assert not [check.name for check in checks if check.failed]
    assert find_check(checks, "GPU-aware MPI").fact


def test_an_interpreter_without_hpcbench(tmp_path: Path) -> None:
    bare = tmp_path / "bare python"
    bare.write_text(f"#!/bin/sh\nunset PYTHONPATH\nexec '{Path(sys.base_prefix)}/bin/python3' -S -I \"$@\"\n")
    bare.chmod(0o755)
    checks = ranks.check_interpreter(local(python=str(bare)))
    assert find_check(checks, "python").health is Health.OK
    for name in ("hpcbench", "numpy", "mpi4py", "torch"):
        assert find_check(checks, name).failed and find_check(checks, name).remedy, name


def test_an_interpreter_that_does_not_exist() -> None:
    (check,) = ranks.check_interpreter(local(python="/nowhere/python"))
    assert check.failed and check.health is Health.MISSING
    (check,) = ranks.check_interpreter(local(python="/nowhere/python", scheduler={"kind": "slurm"}, node={"cores": 2}))
    assert check.failed and check.health is Health.UNKNOWN, "compute nodes may have it"


def test_an_interpreter_that_crashes_loses_only_the_rest(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho Welcome\necho \'["python", "ok", "3.12", ""]\'\nkill -SEGV $$\n')
    python.chmod(0o755)
    checks = ranks.check_interpreter(local(python=str(python)))
    assert find_check(checks, "python").health is Health.OK
    torch = find_check(checks, "torch")
    assert torch.health is Health.UNKNOWN and torch.failed and "signal 11" in torch.fact


@pytest.mark.parametrize(
    ("fact", "device", "healthy", "needs_cupy"),
    [
        ("2.13.0, built without CUDA", "cpu", True, False),
        ("2.13.0, built without CUDA", "cuda", False, True),
        ("2.13.0, CUDA 13.0, sees 4 GPUs, NCCL 2.28", "cuda", True, True),
        ("2.13.0, ROCm 7.0, sees 8 GPUs", "cuda", True, False),
    ],
)
def test_pytorch_must_be_built_for_the_device(
    tmp_path: Path, fact: str, device: str, healthy: bool, needs_cupy: bool
) -> None:
    lines = [["torch", "ok", fact, ""], ["CuPy", "missing", "No module named 'cupy'", ""]]
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n" + "".join(f"echo '{json.dumps(line)}'\n" for line in lines).replace("'cupy'", "cupy")
    )
    python.chmod(0o755)
    checks = ranks.check_interpreter(local(python=str(python), device=device))
    torch, cupy = find_check(checks, "torch"), find_check(checks, "CuPy")
    assert (torch.health is Health.OK, cupy.failed) == (healthy, needs_cupy)
    assert healthy or torch.remedy == "install the build of PyTorch for the CUDA version of the nodes"


def test_setup_and_variables_of_the_site_hold_for_its_interpreter(tmp_path: Path) -> None:
    site = local(setup=["cd /", "export A='x y'"], environment={"B": "$(touch pwned) \"'"})
    code = "import os; print(os.getcwd(), os.environ['A'], os.environ['B'])"
    outcome = attempt(job_shell.in_job(site, [sys.executable, "-c", code]))
    assert outcome.out == "/ x y $(touch pwned) \"'\n"


def test_a_module_that_cannot_be_loaded_is_the_reason(machine: Machine) -> None:
    site = local(scheduler={"kind": "slurm"}, launcher={"kind": "srun"}, node={"cores": 4}, modules=["gone/1"])
    machine.script("srun", "exit 0")
    launcher = find_check(ranks.check_launchers(site), "launcher srun")
    python = find_check(ranks.check_interpreter(site), "python")
    assert launcher.fact.startswith("not searched: ") and "may exist only" not in python.fact
    for check in (launcher, python):
        assert "module: command not found" in check.fact and check.remedy.startswith(
            "correct `modules` of the site file"
        )


def test_a_launcher_of_another_library_makes_worlds_of_one(tmp_path: Path) -> None:
    wrong = tmp_path / "mpiexec"
    wrong.write_text('#!/bin/bash\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\n"$@" && "$@"\n')
    wrong.chmod(0o755)
    check, _ = ranks.check_world(local(launcher={"kind": "mpich", "program": str(wrong)}), run=False)
    assert check.failed and "a separate world" in check.fact and check.remedy


def test_nothing_is_started_on_a_cluster_unless_asked(tmp_path: Path) -> None:
    trap = tmp_path / "srun"
    trap.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    trap.chmod(0o755)
    launcher = {"kind": "srun", "program": str(trap)}
    site = local(scheduler={"kind": "slurm"}, launcher=launcher, node={"cores": 4}, python="python3")
    assert {check.health for check in ranks.check_world(site, run=False)} == {Health.UNKNOWN}
    assert not (tmp_path / "started").exists()
    ranks.check_world(site, run=True)
    assert (tmp_path / "started").exists()


def test_codecs_give_the_committed_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong, tried = selftest.faults()
    assert wrong == [] and tried == "23 codecs"
    committed = json.loads(selftest._FILE.read_text())
    assert len(set(committed.values())) == len(selftest.CODECS), "no two codecs write the same"
    (tmp_path / "digests.json").write_text(json.dumps({**committed, "zfp:8": "0" * 16}))
    monkeypatch.setattr(selftest, "_FILE", tmp_path / "digests.json")
    assert selftest.faults()[0] == ["zfp:8: its bytes differ from the committed ones"]


def test_an_error_above_its_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcbench.codecs.quant import Quant

    monkeypatch.setattr(Quant, "error_bound", lambda self, x: 1e-9)
    assert [line.split(":")[0] for line in selftest.faults()[0]] == ["int8", "int4"]


def test_variables_of_an_outer_job_are_named_and_kept_from_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_CONF", "FLUX_URI"):
        monkeypatch.setenv(name, "1")
    assert "OMPI_COMM_WORLD_SIZE, PMI_RANK, SLURM_JOB_ID: set in this shell" in shell.check_shell().fact
    clean = job_shell.job_environment().keys()
    assert {"SLURM_CONF", "FLUX_URI"} <= clean and not clean & {"SLURM_JOB_ID", "PMI_RANK", "OMPI_COMM_WORLD_SIZE"}


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_check(place.check_place(tmp_path), "links").health is Health.OK

    def refuse(*paths: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert find_check(place.check_place(tmp_path), "links").failed
    monkeypatch.setattr(os, "link", lambda *paths: None)
    assert find_check(place.check_place(tmp_path), "links").failed, "a second link must be refused"


def test_a_disk_that_is_full_and_a_quota_that_is_used_up(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "LEAST_GB", 1e9)
    machine.script("quota", "echo 'Disk quotas for user u (uid 1):'; echo '/dev/sda 105M* 100M 100M 6days'; exit 1")
    checks = place.check_place(tmp_path)
    assert find_check(checks, "work directory").failed
    assert find_check(checks, "quota").health is Health.MISSING and "/dev/sda" in find_check(checks, "quota").fact


def test_the_clock_of_the_file_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_check(place.check_place(tmp_path), "clock").health is Health.OK
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert find_check(place.check_place(tmp_path), "clock").health is Health.MISSING


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["hpcbench", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def test_the_command_prints_one_line_per_check_and_writes_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, monkeypatch, "doctor", "--json", "found.json")
    findings = json.loads((tmp_path / "found.json").read_text())
    assert (code, findings["failed"]) == (0, [])
    lines = out.splitlines()
    assert len(lines) == len(findings["checks"]) + 1 and lines[-1] == "all required checks passed"
    assert {line.split()[0] for line in lines[:-1]} <= {"ok", "missing", "unknown"}


def test_the_command_fails_if_the_sites_scheduler_does_not_answer(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, monkeypatch, "doctor", "--site", lsf_site(tmp_path))
    assert code == 1
    assert "missing scheduler lsf: lsid is not on PATH" in out
    assert "scheduler lsf" in out.splitlines()[-1]


def test_a_draft_from_the_command_line(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.answers(recorded("slurm-22.05"))
    code, out, err = run(capsys, monkeypatch, "doctor", "--draft-site", "--name", "mine")
    assert (code, err) == (0, "") and "\nsite: mine " in out
    code, out, err = run(capsys, monkeypatch, "doctor", "--name", "mine")
    assert code == 2 and err.startswith("hpcbench: --name: is only for a drafted site")


@pytest.mark.parametrize("draft", [True, False], ids=["draft", "examine"])
def test_a_login_node_needs_none_of_the_heavy_modules(machine: Machine, tmp_path: Path, draft: bool) -> None:
    arguments = ["doctor", "--draft-site"] if draft else ["doctor", "--site", lsf_site(tmp_path)]
    code = (
        "import sys\nfrom hpcbench import cli\n"
        "for name in ('numpy', 'torch', 'mpi4py', 'cupy', 'submitit', 'ml_dtypes'):\n    sys.modules[name] = None\n"
        f"sys.argv = ['hpcbench', *{arguments!r}]\ncli.main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stderr == "" and done.returncode == (0 if draft else 1)


def test_a_node_with_fewer_cores_than_the_site_file_states_is_reported(machine: Machine) -> None:
    machine.script("mpiexec", "echo world=2; echo cores=2; echo aware=no none")
    site = local(
        node={"cores": 8},
        oversubscribe=False,
        launcher={"kind": "mpich", "program": str(machine.directory / "mpiexec")},
        threads=1,
    )
    check, _ = ranks.check_world(site, run=True)
    assert check.failed and "a world of 2, on a node with 2 cores, but the site file has 8" in check.fact
    assert check.remedy.startswith("write node: {cores: 2}")
    shares = site.model_copy(update={"oversubscribe": True})
    assert ranks.check_world(shares, run=True)[0].health is Health.OK


SRUN = """echo 'srun: cpu-bind=MASK - n1, task  0  0 [4711]: mask 0x1 set' >&2
echo 'Traceback (most recent call last):' >&2
echo '0: {error}' >&2
echo 'srun: error: n1: task 0: Exited with exit code 1' >&2
exit 1"""


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("RuntimeError: cannot load MPI library", "load the module of an MPI library"),
        ("ImportError: libmpi.so.12: cannot open shared object file", "load the module of an MPI library"),
        ("ModuleNotFoundError: No module named x", "start the command by hand"),
        ("mpi4py.MPI.Exception: MPI_ERR_OTHER: known error", "start the command by hand"),
    ],
)
def test_the_error_of_a_rank_is_shown_and_not_that_of_its_launcher(machine: Machine, error: str, remedy: str) -> None:
    machine.script("mpiexec", SRUN.format(error=error))
    site = local(launcher={"kind": "mpich", "program": str(machine.directory / "mpiexec")}, threads=1)
    check, _ = ranks.check_world(site, run=True)
    assert check.failed and check.fact.endswith(f": {error}") and check.remedy.startswith(remedy)


@pytest.mark.parametrize("kind", [ImportError, RuntimeError])
def test_mpi4py_without_an_mpi_library_is_not_a_missing_mpi4py(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    class Fails:
        rc = types.SimpleNamespace()

        @property
        def MPI(self) -> None:  # noqa: N802  the package's own name
            raise kind("cannot load MPI library")

    monkeypatch.setitem(sys.modules, "mpi4py", Fails())  # type: ignore[arg-type]
    monkeypatch.setattr("hpcbench.doctor.probe.version", lambda name: "4.1.1")
    health, fact, remedy = probe._mpi4py()
    assert (health, fact) == ("missing", "4.1.1 found no MPI library: cannot load MPI library")
    assert "pip install mpich" in remedy and "mpi4py" not in remedy


def test_an_old_pytorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.4.1+cu121"))  # type: ignore[arg-type]
    assert probe._torch() == ("missing", "2.4.1+cu121, older than 2.5", "install PyTorch 2.5 or later")


def test_that_ranks_have_met_is_remembered_until_their_launch_changes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    machine.script("mpiexec", "echo world=1; echo world=1")
    launch = {"kind": "mpich", "program": str(machine.directory / "mpiexec")}
    node, python = {"cores": 4}, sys.executable
    site = local(scheduler={"kind": "slurm"}, launcher=launch, node=node, python=python)
    ranks.check_world(site, run=True)
    assert not have_met(site, tmp_path)
    machine.script("mpiexec", "echo world=2; echo cores=64")
    ranks.check_world(site, run=True)
    assert have_met(site, tmp_path)
    assert not have_met(site.model_copy(update={"modules": ["other-mpi"]}), tmp_path)


def test_if_a_scheduler_answers_ranks_are_started_only_on_request(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.answers(recorded("slurm-22.05"))
    machine.script("mpiexec", f"touch {machine.directory}/started")
    monkeypatch.setattr("hpcbench.doctor.examine.check_interpreter", lambda site, run: [])
    checks = examine(None)
    assert "name the site" in find_check(checks, "two ranks").remedy
    assert not (machine.directory / "started").exists()
    assert "scheduler" not in [check.name for check in checks]  # the site is not local
    assert find_check(checks, "scheduler slurm").needed
