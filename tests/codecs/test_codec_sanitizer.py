"""Tests of the kernels under address and undefined-behavior sanitizers, with damaged streams and unaligned pointers."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from codec_data import builds
from emulator import compiler, version
from kept import cache_file, digest

from hpcbench.resources import data_dir

HERE = Path(__file__).parent
KERNELS = data_dir("kernels")
SANITIZE = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
OPTIONS = ["-std=gnu++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing"]
# these builds use only the platform's base instruction set; all builds share their source
FLAGS = {"generic": ["-DHB_SCALAR"], "sse2": []}


def compile_cpp(target: Path, *arguments: str) -> None:
    command = [compiler(), *OPTIONS, *SANITIZE, f"-I{KERNELS}", *arguments, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def driver(build: str, overrun: int, folder: Path) -> Path:
    """Compile the program that runs a build's kernels, or return it from the cache."""

    def compile_it(target: Path) -> None:
        sources = [path for path in sorted((KERNELS / "cpu").glob("*.cpp")) if path.stem != "dispatch"]
        objects = [folder / f"{path.stem}.o" for path in sources]

        def compile_one(source: Path, to: Path) -> None:
            if not to.exists():  # reuse objects of the previous driver
                compile_cpp(to, f"-DHB_BUILD={build}", *FLAGS[build], "-c", str(source))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(compile_one, sources, objects))
        flags = [f"-DBUILD=hb_kernels_{build}", f"-DOVERRUN={overrun}"]
        compile_cpp(target, *flags, str(HERE / "sanitize.cpp"), *map(str, objects))

    made_of = [*OPTIONS, *SANITIZE, build, *FLAGS[build], overrun, version()]
    return cache_file([*made_of, digest(KERNELS, HERE / "sanitize.cpp")], "", compile_it)


@pytest.mark.long
@pytest.mark.parametrize("build", [name for name in builds() if name in FLAGS])
def test_clean_and_a_planted_overrun_is_caught(build: str, tmp_path: Path) -> None:
    sound, overrunning = (driver(build, overrun, tmp_path) for overrun in (0, 1))
    clean = subprocess.run([str(sound)], capture_output=True, text=True)
    assert clean.returncode == 0, clean.stdout + clean.stderr[-2000:]
    values, streams, refused = (int(clean.stdout.split()[place]) for place in (0, 2, 4))
    assert values >= 10_000_000
    assert refused > streams // 8, "damaged streams must be refused if the damage is detectable"

    caught = subprocess.run([str(overrunning)], capture_output=True, text=True)
    assert caught.returncode != 0
    assert "heap-buffer-overflow" in caught.stderr
