"""A wheel holds what a checkout holds: kernels, templates, sites, studies and presets are found in it."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
pytestmark = pytest.mark.long  # all kernels are compiled once more


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, CHECKOUT], check=True, timeout=600
    )
    (wheel,) = folder.glob("hpcbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run_in(unpacked, cwd, code):
    """Run code with the wheel in place of the checkout: without site, or an editable install would be found first."""
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


def test_scripts_of_virtual_hosts_and_clusters_lie_in_the_wheel(unpacked):
    hosts, slurm = Path("hpcbench/testing/hosts"), Path("hpcbench/testing/slurm")
    names = [hosts / n for n in ("up.sh", "host.sh", "on.sh", "limit.sh", "wire.c")]
    names += [slurm / n for n in ("first.sh", "node.sh")]
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


def test_the_fakes_of_the_wheel_run_jobs(unpacked, tmp_path):
    code = (
        "from hpcbench.testing.fakes import FakeFlux, FakeLSF\n"
        "with FakeLSF() as lsf, FakeFlux() as flux:\n"
        "    lsf.run('bsub', '-nnodes', '2', stdin=b'lrun -N2 -T1 uname -n > out')\n"
        "    flux.run('flux', 'batch', '-N1', stdin=b'#!/bin/sh\\ntrue\\n')\n"
        "    print(lsf.wait()[0].exit, flux.wait()[0].exit, lsf._path())\n"
    )
    assert run_in(unpacked, tmp_path, code).split()[:2] == ["0", "0"]
    assert str(unpacked) in run_in(unpacked, tmp_path, code)
