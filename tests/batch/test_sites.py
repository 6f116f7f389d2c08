"""Tests of site files: shipped files are valid, all errors in a file are reported, and sites are displayed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch_cases import counts

from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.check_site import check_file
from hpcbench.batch.sites.load_site import load_site, site_names
from hpcbench.batch.sites.show_site import check_sites, show_site
from hpcbench.batch.submit import Options, submit
from hpcbench.errors import UserError
from hpcbench.resources import data_dir

WANTED = {"lassen", "summit", "lsf-cluster", "longhorn", "perlmutter", "frontier", "leonardo", "juwels-booster",
          "slurm-cluster", "tuolumne", "vista", "lonestar6", "marenostrum5", "local", "virtual-hosts"}  # fmt: skip


def test_the_important_machines_have_site_files() -> None:
    assert set(site_names()) >= WANTED


@pytest.mark.parametrize("name", site_names())
def test_a_shipped_site(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(data_dir("sites") / f"{name}.yaml") == []
    site, _ = load_site(name)
    assert site.sources or site.scheduler.kind == "local"
    for queue in site.queues.values():
        assert queue.source, "a limit lacks its source"
    usual = site.capacity.ranks_per_node or site.capacity.slots
    shape, argv = solve(site, nodes=2, ranks_per_node=usual)
    assert counts(argv).get("ranks", shape.ranks) == 2 * usual
    show_site(name)
    output = capsys.readouterr().out
    for text in (site.description, site.checked, *site.queues, *site.modules):
        assert str(text) in output
    assert not [line for line in output.splitlines() if line != line.rstrip()], "trailing blanks"
    assert " 1 jobs" not in output


@pytest.mark.parametrize("name", sorted(set(site_names()) - {"local", "virtual-hosts"}))
def test_scripts_have_nothing_that_the_site_refuses(name: str, tmp_path: Path) -> None:
    """TACC refuses scripts that contain any of these words. CORAL's filter refuses scripts with -n."""
    site, _ = load_site(name)
    nodes = 3
    ranks = nodes * (site.capacity.ranks_per_node or 1)
    sets = [f"nodes={nodes}", "layout={tp: 1, pp: 1}", f"train.global_batch={ranks}", "account=mine", "repeats=1"]
    sets.append("matrix={scheme: [baseline]}")
    study = data_dir("studies") / "neox-hybrid.yaml"
    submission = submit(study, Options(site=name, dry_run=True, out=tmp_path, sets=sets))
    script = (submission.root / "jobs" / submission.jobs[0].id / "job.sh").read_text(encoding="utf-8")
    head = [line for line in script.splitlines() if line.startswith(("#SBATCH", "#BSUB", "#flux:"))]
    launch = next(line for line in script.splitlines() if line.lower().startswith("launch=("))
    used = {word.partition("=")[0] for line in (*head, launch) for word in line.replace("(", " ").split()}
    assert head and not used & set(site.scheduler.refuses)
    assert not [line for line in head if line.endswith("=")], "a value is empty"
    options = {line.split()[1].partition("=")[0] for line in head}
    assert not {"-nnodes"} <= options or not options & {"-n", "-R"}
    asked = site.scheduler.account_option
    assert asked is None or asked in options
    queue = next(iter(site.queues), None)
    assert queue is None or any(line.replace("=", " ").split()[-1] == queue for line in head)


FAULTS = """\
site: planted
description: each line with a mark at its end has a fault, and no other
scheduler:
  kind: slurm
  hand_in: file                                    # 1 for LSF alone
  gpu_request: gres
  refuses: [--mem]
  directives:
    --nodes: 2                                     # 2 set by hpcbench
    --gres: "gpu:4"                                # 3 set by hpcbench, because of gpu_request
    --mem: 10G                                     # 4 among those refused
    --comment: "fine"
queues:
  small:
    min_nodes: 9                                   # 5 above max_nodes
    max_nodes: 8
    max_walltime: 3h
    bins:
      - {max_nodes: 4, max_walltime: 1h}
      - {max_nodes: 2, max_walltime: 2h}           # 6 not ascending
      - {max_nodes: 8, max_walltime: 4h}           # 7 above the queue's own
  other: {max_walltime: "1:30"}                    # 8 ambiguous
  third: {max_nodes: -1}                           # 9 not a count
walltime: 5h                                       # 10 longer than the first queue allows
node:
  gpus: 3                                          # 11 do not divide into the sockets
  cores: auto                                      # 12 this machine's
  sockets: 2
  memory: 256                                      # 13 no such key
launcher:
  kind: jsrun                                      # 14 not of Slurm
  visibility: one
modules: [3]                                       # 15 no text
environment:
  OMP_NUM_THREADS: "3"                             # 16 follows from threads
  FINE: "1"
setup:
  - "true"
  - "  #SBATCH --qos=free"                         # 17 a directive
  - "#flux: --nodes=3"                             # 18 another
teardown: ["#BSUB -n 4"]                           # 19 one more
python: auto                                       # 20 this machine's
device: gpu                                        # 21 no such device
checked: never
"""


def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "planted.yaml"
    path.write_text(FAULTS, encoding="utf-8")
    marked = {number for number, line in enumerate(FAULTS.splitlines(), 1) if re.search(r"  # \d+ ", line)}
    messages = check_file(path)
    lines = [int(re.match(rf"{re.escape(str(path))}:(\d+): \S+: .", fault)[1]) for fault in messages]  # type: ignore[index]
    assert set(lines) == marked and len(marked) == 21
    assert lines == sorted(lines) and len(lines) == len(marked)


RIGHT: dict[str, Any] = {
    "site": "x",
    "scheduler": {"kind": "slurm"},
    "node": {"gpus": 4, "cores": 32},
    "launcher": {"kind": "srun"},
    "device": "cuda",
    "checked": "never",
}


def lsf(**fields: Any) -> dict[str, Any]:
    return {"scheduler": {"kind": "lsf", "account_option": "-P", **fields}, "launcher": {"kind": "jsrun"}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lsf(directives={"-n": 4}), "-n: cannot be combined with -nnodes"),
        (lsf(directives={"-R": "span[ptile=4]"}), "-R: cannot be combined with -nnodes"),
        (lsf(allocation="slots", directives={"-R": "span[ptile=4]"}), "-R: span[] is set by hpcbench"),
        (lsf(directives={"-nnodes": 4}), "-nnodes: is set by hpcbench"),
        (lsf(directives={"-q": "b"}), "-q: is set by hpcbench"),
        (lsf(directives={"-P": "b"}), "-P: is set by hpcbench"),
        (lsf(gpu_request="gres"), "gres is not supported with lsf: use none or gpu"),
        ({**lsf(), "launcher": {"kind": "ibrun"}}, "ibrun starts ranks in jobs of slurm, not of lsf"),
        ({"scheduler": {"kind": "flux"}}, "use flux, mpich, openmpi, mvapich or mpirun_rsh"),
        ({"scheduler": {"kind": "local"}}, "srun starts ranks in jobs of slurm, not of local: use mpich,"),
        (
            {"scheduler": {"kind": "local", "max_array": 3}, "launcher": {"kind": "mpich"}},
            "has no effect without a scheduler",
        ),
        ({"scheduler": {"kind": "slurm", "queue_option": "--qos", "directives": {"--qos": "x"}}}, "--qos: is set by"),
        ({"scheduler": {"kind": "slurm", "refuses": ["--gres"], "gpu_request": "gres"}}, "use none"),
        (
            {"scheduler": {"kind": "slurm", "refuses": ["--x"]}, "launcher": {"kind": "srun", "args": ["--x=1"]}},
            "remove it",
        ),
        ({"scheduler": {"kind": "slurm", "directives": {"--export": "NONE"}}}, "--export: is set by hpcbench"),
        ({"launcher": {"kind": "srun", "mpi": "mvapich"}}, "launcher.mpi: applies only to jsrun and lrun"),
        (
            {"launcher": {"kind": "ibrun", "visibility": "one"}},
            "launcher.visibility: ibrun always shows a rank all GPUs",
        ),
        ({"launcher": {"kind": "srun", "visibility": "socket"}}, "write one or all"),
        ({"node": {"cores": 32}}, "device: cuda needs node.gpus"),
        ({"node": {"gpus": 3, "cores": 32, "sockets": 2}}, "add socket_gpus, such as [1, 2]"),
        (
            {"node": {"gpus": 3, "cores": 32, "sockets": 2, "socket_gpus": [1, 1]}},
            "[1, 1] must list one number for each",
        ),
        ({"node": {"gpus": 4, "cores": 1, "sockets": 2}}, "1 is less than node.sockets, 2"),
        (
            {"node": {"gpus": 40, "cores": 32}},
            "node: the default ranks per node do not fit on a node: 40 ranks, but a node of x has 32",
        ),
        ({"ranks_per_node": 64}, "ranks_per_node: the default ranks"),
        (
            {"threads": 9},
            "threads: the default ranks per node do not fit on a node: 9 threads per rank, but a rank has 8 cores",
        ),
        (
            {"queues": {"q": {"max_nodes": 9, "bins": [{"max_nodes": 8, "max_walltime": "1h"}]}}},
            "above max_nodes of the last bin, 8",
        ),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "follows from launcher.visibility"),
        ({"environment": {"HPCBENCH_ATTEMPT": "1"}}, "is set by hpcbench"),
    ],
)
def test_combinations_of_valid_values_that_are_refused(
    fake_site: Callable[..., Path], change: dict[str, Any], says: str
) -> None:
    path = fake_site(**change)
    messages = check_file(path)
    assert len(messages) == 1 and says in messages[0], messages
    with pytest.raises(UserError) as caught:
        load_site(str(path))
    assert str(caught.value) == messages[0]


@pytest.fixture
def fake_site(tmp_path: Path) -> Callable[..., Path]:
    import json

    def write(**changes: Any) -> Path:
        path = tmp_path / "x.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in {**RIGHT, **changes}.items()))
        return path

    return write


def test_check_asks_for_the_account_option_of_lsf(fake_site: Callable[..., Path]) -> None:
    path = fake_site(scheduler={"kind": "lsf"}, launcher={"kind": "jsrun"})
    assert [line.split(": ", 1)[1] for line in check_file(path)] == [
        "scheduler: account_option is missing: set it to -G at LLNL, and to -P at OLCF and most other sites"
    ]
    assert load_site(str(path))[0].scheduler.account_option is None


def test_a_directory_of_templates_is_looked_for(fake_site: Callable[..., Path]) -> None:
    path = fake_site(templates="mine")
    assert check_file(path) == [
        f"{path}:7: templates: {path.parent}/mine is not a directory (paths are relative to the directory of the site "
        "file)"
    ]
    (path.parent / "mine").mkdir()
    assert check_file(path) == []


def test_a_valid_site_has_no_fault(fake_site: Callable[..., Path]) -> None:
    assert check_file(fake_site()) == []
    assert check_file(fake_site(**lsf(allocation="slots", directives={"-R": "rusage[mem=4]"}))) == []
    queue = {"bins": [{"max_nodes": 4, "max_walltime": "2h"}, {"max_nodes": 8, "max_walltime": "1h"}], "max_nodes": 8}
    assert check_file(fake_site(queues={"q": queue}, walltime="2h")) == []


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"node": {"gpus": "four", "cores": 32}}, ["node.gpus: must be a whole number, not 'four'"]),
        ({"scheduler": {}}, ["scheduler.kind: is missing: add it"]),
        ({"launcher": 3}, ["launcher: must be a mapping, not 3"]),
        ({"scheduler": {"kind": "pbs", "directives": {"-nnodes": 3}}}, ["scheduler.kind: must be"]),
        ({"setup": [3, "#SBATCH -x"]}, ["setup.0: must be text, not 3"]),
        ({"queues": {"q": {"bins": [{"max_nodes": 4}, {"max_nodes": 2, "max_walltime": "1h"}]}}},
         ["queues.q.bins.0.max_walltime: is missing"]),
        ({"queues": {"q": {"bins": 3}, "r": {"min_nodes": 2, "max_nodes": 1}}},
         ["queues.q.bins: must be a list, not 3", "queues.r.min_nodes: 2 is above max_nodes, 1"]),
        ({"network": {"bandwidth_gbit": -1}},
         ["network.bandwidth_gbit: must be above 0", "network.description: is missing"]),
        ({"checked": None}, ["checked: must be text, not nothing"]),
    ],
)  # fmt: skip
def test_a_fault_causes_no_others(fake_site: Callable[..., Path], change: dict[str, Any], faults: list[str]) -> None:
    messages = check_file(fake_site(**change))
    assert len(messages) == len(faults), messages
    for fault in faults:
        assert any(fault in line for line in messages), (fault, messages)


def test_files_that_are_not_yaml_are_faults(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [", encoding="utf-8")
    assert check_file(tmp_path / "a.yaml")[0].startswith(f"{tmp_path}/a.yaml:1: not YAML")
    assert check_file(tmp_path / "b.yaml") == [f"{tmp_path}/b.yaml: no such file: check the path"]


def test_files_are_checked_one_after_another(
    fake_site: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = str(fake_site(device="gpu", threads=-1))
    assert check_sites([bad, "lassen", "local"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].startswith(f"{bad}:") and lines[1].startswith(f"{bad}:")
    assert [line.rsplit(": ", 1)[1] for line in lines[2:]] == ["valid", "valid"]
    assert check_sites(["lassen"]) == 0
    with pytest.raises(UserError, match="name the site files to check"):
        check_sites([])


def test_loading_reports_all_faults(fake_site: Callable[..., Path]) -> None:
    path = fake_site(setup=["#SBATCH -x"], launcher={"kind": "flux"})
    with pytest.raises(
        UserError, match=r"x.yaml:4: launcher.kind: flux .*\n.*x.yaml:\d+: setup.0: is a directive of the scheduler"
    ):
        load_site(str(path))


def test_a_site_is_shown_unchanged(fake_site: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = fake_site(description="[bold]x[/bold] :smile:", setup=["echo [red]$(id)[/]"], gpu_aware_mpi=None)
    show_site(str(path))
    output = capsys.readouterr().out
    assert "[bold]x[/bold] :smile:" in output and "echo [red]$(id)[/]" in output
    assert re.search(r"^GPU-aware MPI +unknown", output, re.MULTILINE) and "\x1b" not in output
    assert "srun --nodes=2 --ntasks=8" in output


def test_a_missing_python_is_reported(fake_site: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = fake_site(python="/no/such/python")
    assert check_sites([str(path)]) == 0  # compute nodes may have it
    assert (
        capsys.readouterr()
        .out.strip()
        .endswith(": valid, but /no/such/python does not exist here: `python` must be a path on the compute nodes")
    )
