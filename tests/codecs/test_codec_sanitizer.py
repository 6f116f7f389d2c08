"""The kernels under the address and undefined-behaviour sanitizers: hostile bytes, damaged streams, odd pointers."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from codec_data import builds

from hpcbench.resources import data_dir

HERE = Path(__file__).parent
KERNELS = data_dir("kernels")
SANITIZE = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
# these two take no instruction set beyond the platform's; their text is that of all builds
FLAGS = {"generic": ["-DHB_SCALAR"], "sse2": []}


def compile_cpp(*arguments: str) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "needs a C++ compiler, as building the package does"
    flags = ["-std=gnu++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", f"-I{KERNELS}"]
    done = subprocess.run([compiler, *flags, *SANITIZE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("build", [name for name in builds() if name in FLAGS])
def test_clean_and_a_planted_overrun_is_caught(build: str, tmp_path: Path) -> None:
    sources = [path for path in sorted((KERNELS / "cpu").glob("*.cpp")) if path.stem != "dispatch"]
    objects = [str(tmp_path / f"{path.stem}.o") for path in sources]

    def compile_one(source: Path, target: str) -> None:
        compile_cpp(f"-DHB_BUILD={build}", *FLAGS[build], "-c", str(source), "-o", target)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, sources, objects))
    for overrun in (0, 1):
        program = str(tmp_path / f"driver{overrun}")
        flags = [f"-DBUILD=hb_kernels_{build}", f"-DOVERRUN={overrun}"]
        compile_cpp(*flags, str(HERE / "sanitize.cpp"), *objects, "-o", program)
    clean = subprocess.run([str(tmp_path / "driver0")], capture_output=True, text=True)
    assert clean.returncode == 0, clean.stdout + clean.stderr[-2000:]
    values, streams, refused = (int(clean.stdout.split()[place]) for place in (0, 2, 4))
    assert values >= 10_000_000
    assert refused > streams // 8, "damaged streams must be refused where that can be told"

    caught = subprocess.run([str(tmp_path / "driver1")], capture_output=True, text=True)
    assert caught.returncode != 0
    assert "heap-buffer-overflow" in caught.stderr
