"""Job scripts: goldens byte for byte, what schedulers accept in their heads, and values that try to get out.

After a change of a template that is meant, write the goldens anew and read the difference:

    HPCBENCH_UPDATE_GOLDENS=1 python -m pytest tests/batch/test_render.py && git diff tests/batch/golden
"""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from hpcbench.batch.heads import directive
from hpcbench.batch.plan import plan
from hpcbench.batch.quoting import quote
from hpcbench.batch.render import Job, render
from hpcbench.batch.site import Site, load_site
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

GOLDEN = Path(__file__).parent / "golden"
FULL: dict[str, Any] = {
    "site": "full",
    "scheduler": {
        "kind": "slurm",
        "account_option": "--account",
        "directives": {"--gres": "gpu:4", "--constraint": "gpu&hbm80g", "--exclusive": None},
    },
    "queues": {"boost": {"max_nodes": 64, "max_walltime": "2d"}},
    "walltime": "25h",
    "node": {"gpus": 4, "cores": 32, "sockets": 1},
    "launcher": {"kind": "srun", "args": ["--mpi=pmix"], "visibility": "all"},
    "device": "cuda",
    "modules": ["cuda/12.4", "openmpi (gpu)"],
    "environment": {"NCCL_NET": "AWS Libfabric", "TRICKY": 'it\'s $(touch pwned) `id` "x" \\'},
    "setup": ["ulimit -s unlimited", 'source "$HOME/venv/bin/activate"'],
    "python": "/sw/my python/bin/python3",
    "checked": "never",
}


OFFER: dict[str, Any] = {
    "site": "offer",
    "scheduler": {"kind": "slurm", "account_option": "--account"},
    "walltime": "2h",
    "node": {"gpus": 4, "cores": 32},
    "launcher": {"kind": "openmpi", "args": ["--mca", "btl", "self"]},
    "device": "cuda",
    "schemes": {
        "library-zfp16": {
            "algorithm": "native",
            "environment": {"MPIR_CVAR_ENABLE_COMPRESSION": "1", "MPIR_CVAR_ZFP_PATH": "/it's $HOME/`id` \\"},
        },
        "library-mpc": {"algorithm": "native", "environment": {"MPIR_CVAR_COMPRESSION_ALGORITHM": "mpc"}},
    },
    "checked": "never",
}
SITES = {"full": FULL, "offer": OFFER}


def jobs_of(study: str, site: Site, sets: list[str] | None = None) -> list[Job]:
    loaded = load_study(GOLDEN / f"{study}.yaml", sets)
    return plan(expand(loaded, site.room, site.offer), loaded, site, dry_run=True)[0]


def script(name: str) -> str:
    """The first script that a golden study gives on a site, under fixed paths."""
    if name == "local":
        site, _ = load_site("local")
        site = site.model_copy(update={"node": site.node.model_copy(update={"cores": 2})})
        job = jobs_of("local", site)[0]
        job = replace(job, python="/opt/venv/bin/python", launch=["/opt/venv/bin/mpiexec", *job.launch[1:]])
        return render(job, site=site, study="demo", root="/home/me/it's $HOME/results/demo/001")
    site = Site.model_validate(SITES[name]) if name in SITES else load_site(name)[0]
    sets = ["account=x", "walltime=null"] if name in SITES else ["account=my-bank", "walltime=1h30m"]
    if name == "offer":
        sets.append("matrix.scheme=[baseline, zhybrid-16-8, library-zfp16, library-mpc]")
    job = jobs_of("cluster", site, sets)[0]
    return render(job, site=site, study="neox-hybrid", root="/scratch/me/results/neox-hybrid/001")


@pytest.mark.parametrize("name", ["local", "lassen", "longhorn", "full", "offer"])
def test_scripts_are_the_goldens_byte_for_byte(name: str) -> None:
    golden = GOLDEN / f"{name}.sh"
    text = script(name)
    if os.environ.get("HPCBENCH_UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["local", "lassen", "longhorn", "full", "offer"])
def test_scripts_are_bash(name: str) -> None:
    checked = subprocess.run(["bash", "-n"], input=script(name), text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def heads(name: str, sentinel: str) -> list[str]:
    lines = script(name).splitlines()
    found = [line.removeprefix(f"{sentinel} ") for line in lines if line.startswith(sentinel)]
    assert lines[0] == "#!/bin/bash" and lines[1 : 1 + len(found)] == [f"{sentinel} {line}" for line in found]
    return found


def test_lassen_asks_in_the_easy_mode_of_lsf() -> None:
    lines = heads("lassen", "#BSUB")
    assert "-rn" in lines
    options = dict(line.split(" ", 1) for line in lines if " " in line)
    assert options == {
        "-J": "neox-hybrid-j0001-r1",
        "-nnodes": "12",
        "-W": "1:30",  # hours:minutes
        "-wt": "2",  # minutes
        "-wa": "URG",
        "-q": "pbatch",
        "-G": "my-bank",
        "-cwd": "/scratch/me/results/neox-hybrid/001",
        "-o": "/scratch/me/results/neox-hybrid/001/jobs/j0001-r1/out.log",
        "-core_isolation": "2",
    }
    assert "-P" not in options and "-n" not in options and "-R" not in options
    assert "lrun -N12 -T4 -M -gpu" in script("lassen")


def test_longhorn_says_every_count_and_nothing_that_tacc_refuses() -> None:
    found = heads("longhorn", "#SBATCH")
    assert {"--nodes=12", "--ntasks=48", "--time=01:30:00", "--partition=v100", "--account=my-bank"} <= set(found)
    assert not [line for line in found if re.match(r"--(gres|gpus|export|nodelist|mem)", line)]
    assert re.search(r"^launch=\(ibrun\)$", script("longhorn"), re.MULTILINE)


def test_the_walltime_of_the_site_holds_where_the_study_has_none() -> None:
    assert "--time=1-01:00:00" in heads("full", "#SBATCH")


def job(**changes: Any) -> Job:
    return replace(
        jobs_of("local", Site.model_validate({**FULL, "oversubscribe": True, "ranks_per_node": 4}))[0], **changes
    )


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "\n"])
def test_line_breaks_are_refused_by_the_filter(text: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        quote(text)


def test_an_undefined_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcbench.batch import render as module

    loader = jinja2.DictLoader({"slurm.sh.j2": "{{ nonsense }}"})
    monkeypatch.setattr(module._environment(), "loader", loader)
    module._environment().cache.clear()
    try:
        with pytest.raises(jinja2.UndefinedError):
            render(job(), site=Site.model_validate(FULL), study="s", root="/r")
    finally:
        module._environment().cache.clear()


def test_directives_are_written_by_one_function_alone() -> None:
    assert directive("#BSUB", "-W", "1:30") == "#BSUB -W 1:30"
    assert directive("#SBATCH", "--no-requeue") == "#SBATCH --no-requeue"
    assert directive("#SBATCH", "--comment", "a b; $(id)") == "#SBATCH --comment='a b; $(id)'"
    with pytest.raises(ValueError, match="line break"):
        directive("#BSUB", "-J", "x\n#BSUB -q other")
    smuggling = Site.model_validate({**FULL, "modules": ["x"]}).model_copy(update={"setup": ["#SBATCH --qos=free"]})
    with pytest.raises(ValueError, match="reads as a directive"):
        render(job(), site=smuggling, study="s", root="/r")


@pytest.mark.parametrize(
    ("kind", "directives", "says"),
    [
        ("lsf", {"-n": 4}, "-n excludes -nnodes"),
        ("lsf", {"-R": "span[ptile=4]"}, "-R excludes -nnodes"),
        ("lsf", {"-W": "2:00"}, "-W is set by hpcbench"),
        ("slurm", {"--nodes": 2}, "--nodes is set by hpcbench"),
    ],
)
def test_directives_that_clash_are_refused(kind: str, directives: dict[str, Any], says: str) -> None:
    site = Site.model_validate({**FULL, "scheduler": {"kind": kind, "directives": directives}})
    with pytest.raises(ValueError, match=says):
        render(job(), site=site, study="s", root="/r")


@pytest.mark.parametrize("root", ["/a b", "/a%J", "/a$(id)", "/a'b", '/a"b', "/a\nb", "/ä"])
@pytest.mark.parametrize("kind", ["slurm", "lsf"])
def test_paths_that_a_scheduler_would_expand_are_refused(kind: str, root: str) -> None:
    site = Site.model_validate({**FULL, "scheduler": {"kind": kind}})
    with pytest.raises(ValueError, match=r"use --out"):
        render(job(), site=site, study="s", root=root)
