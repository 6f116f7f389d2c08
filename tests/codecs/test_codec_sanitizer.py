"""The kernels under the address and undefined-behaviour sanitizers: hostile bytes, damaged containers, odd pointers."""

import shutil
import subprocess
from pathlib import Path

import pytest
from codec_data import builds

from hpcbench.resources import data_dir

HERE = Path(__file__).parent
SANITIZE = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
# these two take no instruction set beyond the platform's; their text is that of all builds
FLAGS = {"generic": ["-DHB_SCALAR"], "sse2": []}


def compile_cpp(*arguments: str) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "needs a C++ compiler, as building the package does"
    command = [compiler, "-std=gnu++17", "-O1", *SANITIZE, "-ffp-contract=off", f"-I{data_dir('kernels')}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("build", [name for name in builds() if name in FLAGS])
def test_clean_and_a_planted_overrun_is_caught(build: str, tmp_path: Path) -> None:
    kernels = str(tmp_path / "kernels.o")
    driver = str(HERE / "sanitize.cpp")
    compile_cpp(f"-DHB_BUILD={build}", *FLAGS[build], "-c", str(data_dir("kernels") / "cpu.cpp"), "-o", kernels)

    for overrun in (0, 1):
        program = str(tmp_path / f"driver{overrun}")
        compile_cpp(f"-DBUILD=hb_kernels_{build}", f"-DOVERRUN={overrun}", driver, kernels, "-o", program)
    clean = subprocess.run([str(tmp_path / "driver0")], capture_output=True, text=True)
    assert clean.returncode == 0, clean.stdout + clean.stderr[-2000:]
    streams, refused = int(clean.stdout.split()[0]), int(clean.stdout.split()[2])
    assert streams > 10_000
    assert refused > streams // 3, "damaged containers must be refused"

    caught = subprocess.run([str(tmp_path / "driver1")], capture_output=True, text=True)
    assert caught.returncode != 0
    assert "heap-buffer-overflow" in caught.stderr
