"""Tests that a wheel contains the files of a checkout: kernels, templates, sites, studies and presets."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tools import explain_missing

CHECKOUT = Path(__file__).parent.parent
pytestmark = pytest.mark.long  # compiles all kernels again


@pytest.fixture(scope="module")
def source(tmp_path_factory, need):
    """A copy of the checkout with a new git history, because the checkout may have no history or another owner."""
    need(explain_missing("git"))  # CMake asks git for the revision
    copy = tmp_path_factory.mktemp("source") / "hpcbench"
    shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "results", "__pycache__"))
    git = ["git", "-C", copy, "-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Copy"]):
        subprocess.run([*git, *command], check=True)
    return copy


@pytest.fixture(scope="module")
def revision(source):
    command = ["git", "-C", source, "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory, source):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source], check=True, timeout=600
    )
    (wheel,) = folder.glob("hpcbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run_in(unpacked, cwd, code):
    """Run code with the wheel instead of the checkout.

    Module site is disabled, because it finds editable installations.
    """
    paths = [str(unpacked), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]]
    start = f"import sys; sys.path[:0] = {paths!r}; sys.argv = ['hpcbench']\n"
    done = subprocess.run(
        [sys.executable, "-S", "-c", start + code], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_data_lies_in_the_wheel_and_equals_the_checkout(unpacked, tmp_path):
    names = ("templates", "sites", "studies", "kernels")
    code = f"from hpcbench.resources import data_dir\nfor name in {names}: print(data_dir(name))"
    places = [Path(line) for line in run_in(unpacked, tmp_path, code).split()]
    assert len(places) == 4
    for place in places:
        assert unpacked in place.parents
        ours = {p.name: p.read_bytes() for p in place.iterdir() if p.is_file()}
        theirs = {p.name: p.read_bytes() for p in (CHECKOUT / place.name).iterdir() if p.name in ours}
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
    assert run_in(unpacked, tmp_path, options + code) == f"hpcbench 0.1.0 (revision {revision})\n"
    keep = "from pathlib import Path\nfrom hpcbench.batch.record_provenance import keep\n"
    run_in(unpacked, tmp_path, keep + "keep(Path(), Path('study.yaml'))")
    recorded = json.loads((tmp_path / "provenance/submit.json").read_text())["git"]["hpcbench"]
    assert recorded == {"revision": revision, "dirty": False}


def test_a_wheel_from_an_sdist_has_the_revision_too(tmp_path, source, revision):
    build = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    tools = tmp_path / "tools"
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "--target", tools, "scikit-build-core>=0.10", "cmake", "ninja"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tools), "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=source, env=environment, check=True, timeout=600)
    (sdist,) = tmp_path.glob("hpcbench-*.tar.gz")
    fast = ["-C", "cmake.build-type=Debug", "-C", "cmake.define.CMAKE_CXX_FLAGS=-O0"]  # the code is never run
    subprocess.run([*pip, "wheel", "-q", "--no-deps", *fast, "-w", tmp_path, sdist], check=True, timeout=600)
    (wheel,) = tmp_path.glob("hpcbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("hpcbench/_data/revision.txt").decode() == revision


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
