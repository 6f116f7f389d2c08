"""Tests of what `make dist` builds: an sdist, and a wheel from it with the files of a checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tools import explain_missing

import hpcbench

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHECKOUT = Path(__file__).parent.parent
FEWER_BUILDS = {**os.environ, "SKBUILD_CMAKE_DEFINE": "HPCBENCH_OPTIMIZE=-O1;HPCBENCH_VECTORIZE=OFF"}
"""Compile the kernels with less optimization, and for one instruction set instead of four."""
pytestmark = pytest.mark.long  # compiles all kernels again


@pytest.fixture(scope="module")
def source(tmp_path_factory, need):
    """A copy of the checkout with a new git history, because the checkout may lack a history or have another owner."""
    need(explain_missing("git"))  # CMake asks git for the revision
    copy = tmp_path_factory.mktemp("source") / "hpcbench"
    left_out = {".git", ".venv", "build", "dist", "__pycache__"}
    shutil.copytree(
        CHECKOUT,
        copy,
        ignore=lambda place, names: (
            left_out & {*names} | ({*names} - {"published"} if place.endswith("/results") else set())
        ),
    )
    git = ["git", "-C", copy, "-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Copy"]):
        subprocess.run([*git, *command], check=True)
    return copy


@pytest.fixture(scope="module")
def revision(source):
    command = ["git", "-C", source, "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def dist(source):
    """Directory of the sdist and the wheel."""
    command = ["make", "-s", "-C", source, "dist", f"VENV={sys.prefix}"]
    done = subprocess.run(command, env=FEWER_BUILDS, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("-")[0] for line in done.stdout.splitlines()[-2:]] == ["dist/hpcbench"] * 2
    return source / "dist"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory, dist):
    folder = tmp_path_factory.mktemp("wheel") / "installed"
    (wheel,) = dist.glob("hpcbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def find_python(minor):
    """Return a working Python 3.minor from PATH or pyenv, or None."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for python in filter(None, [shutil.which(name), *sorted(pyenv.glob(f"versions/*/bin/{name}"))]):
        code = "import ensurepip, sys; print(sys.version_info[1])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)  # a shim of pyenv may refuse
        if done.returncode == 0 and done.stdout.strip() == str(minor):
            return str(python)
    return None


def another_python():
    """Return the oldest other supported Python on this machine, or this Python if no other exists."""
    others = (find_python(minor) for minor in range(10, 20) if minor != sys.version_info[1])
    return next(filter(None, others), sys.executable)


@pytest.fixture(scope="module")
def environment(request, tmp_path_factory, source):  # where the source is denied, no environment is installed
    """A new environment with hpcbench's requirements.

    PyTorch is large, so it is linked from the environment of the tests, and only for this Python. hpcbench itself
    cannot be imported from there.
    """
    path = tmp_path_factory.mktemp("environment")
    python = sys.executable if request.param == "this Python" else another_python()
    subprocess.run([python, "-m", "venv", path], check=True, timeout=1200)
    (packages,) = path.glob("lib/python3.*/site-packages")
    needed = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    engine = [line for line in needed["optional-dependencies"]["train"] if not line.startswith("torch")]
    pip(path, *needed["dependencies"], *engine, *needed["optional-dependencies"]["local"])
    if python == sys.executable:
        links = path / "links"
        links.mkdir()
        for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not entry.name.startswith(("hpcbench", "_editable")) and entry.suffix != ".pth":
                (links / entry.name).symlink_to(entry)
        (packages / "links.pth").write_text(f"{links}\n")  # after the environment's own packages
    return path


def pip(environment, *arguments):
    command = [environment / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile", *arguments]
    done = subprocess.run(command, env=FEWER_BUILDS, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("environment", "kind"),
    [("this Python", ".whl"), ("another Python", ".whl"), ("another Python", ".tar.gz")],
    indirect=["environment"],
    scope="module",  # so that tests in the same environment follow each other
)
def test_an_installed_package_checks_and_trains(environment, dist, revision, kind, tmp_path):
    """hpcbench is imported only from its new environment, in a directory outside of every checkout."""
    trains = (environment / "links").exists()
    (package,) = dist.glob(f"hpcbench-*{kind}")
    pip(environment, "--force-reinstall", "--no-deps", package)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables["PATH"] = f"{environment / 'bin'}:{os.environ['PATH']}"

    def run(*command, status=0):
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    where = (
        "from importlib.metadata import version\nimport hpcbench, torch\nprint(hpcbench.__file__, version('hpcbench'))"
    )
    module, version = run("python", "-c", where if trains else where.replace(", torch", "")).split()
    assert environment in Path(module).parents and version == hpcbench.__version__
    study = str(Path(module).parent / "_data" / "studies" / "demo.yaml")
    sets = ["train.steps=3", "train.warmup_steps=1", "matrix.scheme=[baseline, naive-int8]", "repeats=1"]
    submit = ["hpcbench", "submit", study, "--site", "local", *(word for value in sets for word in ("--set", value))]
    assert "2 runs on local" in run(*submit, "--out", "dry", "--dry-run")
    findings = run("hpcbench", "doctor", "--site", "local", status=0 if trains else 1)
    assert re.search(r"^ok +codecs: \d+ codecs: bytes as committed", findings, re.MULTILINE)
    assert re.search(r"^ok +two ranks: .* a world of 2$", findings, re.MULTILINE)
    assert [line.split(":")[0] for line in findings.splitlines() if line.startswith("missing torch")] == (
        [] if trains else ["missing torch"]
    )
    if trains:
        run(*submit, "--out", "trained", "--wait")
        assert "naive-int8" in run("hpcbench", "report", "trained")
        files = [path.read_text(errors="replace") for path in (tmp_path / "trained").rglob("*") if path.is_file()]
        assert sum(revision in text for text in files) >= 3, "of the submission, and in the log of each run"


def run_in(unpacked, cwd, code):
    """Run code with the wheel instead of the checkout.

    The module `site` is disabled, because it finds editable installations.
    """
    paths = [str(unpacked), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]]
    start = f"import sys; sys.path[:0] = {paths!r}; sys.argv = ['hpcbench']\n"
    done = subprocess.run(
        [sys.executable, "-S", "-c", start + code], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_data_lies_in_the_wheel_and_equals_the_checkout(unpacked, tmp_path):
    names = ("templates", "sites", "studies", "kernels", "results/published")
    code = f"from hpcbench.resources import data_dir\nfor name in {names}: print(data_dir(name))"
    places = [Path(line) for line in run_in(unpacked, tmp_path, code).split()]
    assert len(places) == 5
    for place in places:
        assert unpacked in place.parents
        ours = {p.name: p.read_bytes() for p in place.iterdir() if p.is_file()}
        checkout = CHECKOUT / place.relative_to(unpacked / "hpcbench" / "_data")
        kinds = {Path(name).suffix for name in ours}  # kernels without their README
        theirs = {p.name: p.read_bytes() for p in checkout.iterdir() if p.is_file() and p.suffix in kinds}
        assert ours == theirs
        assert len(ours) >= 2


def test_scripts_of_virtual_hosts_lie_in_the_wheel(unpacked):
    names = [Path("hpcbench/testing/hosts") / n for n in ("up.sh", "host.sh", "on.sh", "limit.sh", "wire.c")]
    ours, theirs = ({name: (top / name).read_text() for name in names} for top in (CHECKOUT, unpacked))
    assert ours == theirs


def test_files_of_the_page_lie_in_the_wheel(unpacked):
    names = [Path("hpcbench/present/page") / n for n in ("page.html.j2", "blocks.html.j2", "page.css", "page.js")]
    names.append(Path("hpcbench/report/page/report.html.j2"))
    ours, theirs = ({name: (top / name).read_text() for name in names} for top in (CHECKOUT, unpacked))
    assert ours == theirs


def test_dry_run_from_the_wheel(unpacked, tmp_path):
    code = (
        "sys.argv += ['submit', 'neox-hybrid', '--dry-run', '--out', 'out']\n"
        f"sys.argv[2] = {str(unpacked / 'hpcbench/_data/studies/neox-hybrid.yaml')!r}\n"
        "from hpcbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code, e.code\n"
    )
    assert "63 runs on lassen" in run_in(unpacked, tmp_path, code)
    assert "#BSUB -nnodes 12" in (tmp_path / "out/001/jobs/j0001-r1/job.sh").read_text()


def test_the_wheel_has_the_revision_it_was_built_from(unpacked, tmp_path, revision):
    """The wheel is inside the checkout of another project with a different revision."""
    code = "from hpcbench.cli import main\ntry: main()\nexcept SystemExit as e: assert not e.code, e.code\n"
    options = "sys.argv += ['--version']\n"
    assert run_in(unpacked, tmp_path, options + code) == f"hpcbench {hpcbench.__version__} (revision {revision})\n"
    keep = "from pathlib import Path\nfrom hpcbench.batch.record_provenance import keep\n"
    run_in(unpacked, tmp_path, keep + "keep(Path(), Path('study.yaml'))")
    recorded = json.loads((tmp_path / "provenance/submit.json").read_text())["git"]["hpcbench"]
    assert recorded == {"revision": revision, "dirty": False}


def test_kernels_in_the_wheel_encode(unpacked, tmp_path):
    code = (
        "import numpy as np\n"
        "from hpcbench.codecs.registry import get_codec\n"
        "c = get_codec('mpc'); x = np.random.default_rng(0).standard_normal(5000).astype('f4')\n"
        "w = np.empty(c.wire_bytes(x.size, x.dtype), 'u1'); n = c.encode(x, w)\n"
        "y = np.empty_like(x); c.decode(w[:n], y)\n"
        "import hpcbench; print(hpcbench.__file__, (x == y).all(), n < x.nbytes)\n"
    )
    out = run_in(unpacked, tmp_path, code).split()
    assert out == [str(unpacked / "hpcbench/__init__.py"), "True", "True"]


def test_the_bench_of_the_wheel_finds_its_data(unpacked, tmp_path):
    code = (
        "sys.argv += ['bench', 'codecs', 'int8', '--data', 'moment', '--mib', '0.1', '--repeats', '1']\n"
        "from hpcbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code, e.code\n"
    )
    assert run_in(unpacked, tmp_path, code).startswith("moment, 0.1 MiB of float32; one core of ")
