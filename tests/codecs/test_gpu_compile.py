"""Tests that the GPU kernels compile for every architecture, keep their values in registers, and do not grow unnoticed.

No GPU or driver is needed. ``python tests/codecs/test_gpu_compile.py`` updates the recorded sizes.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversion import PAIRS, SUMMED
from emulator import KERNELS, build_of
from kept import cache_file, digest
from nvrtc import Kernel, library_path
from planted import plant_fault

from hpcbench.codecs import convert
from hpcbench.codecs.device import Build
from hpcbench.codecs.sequence import CONVERSIONS, SUMS, Sequence, sequence_of
from hpcbench.codecs.types import BFLOAT16

SIZES = Path(__file__).with_name("gpu_instructions.json")
ARCHITECTURES = {"sm_70": 12, "sm_75": 13, "sm_80": 13, "sm_90": 13, "sm_100": 13}
"""CUDA version that compiles for each architecture. CUDA 13 starts at sm_75."""
OLDEST = "sm_70"
"""Architecture of `make test`, which has the fewest registers.

`make test-long` compiles one case per family for each of the other architectures. The kernels distinguish only
architectures before sm_80 from later ones.
"""
NVRTC = Path(__file__).with_name("nvrtc.py")
GROWTH = 1.05
REGISTERS = dict.fromkeys(("int8:1024", "sign:1024", "nvfp4", "mpc", "xpk"), 128)
REGISTERS |= {"rotate512+int4:32/256": 128, "rotate1024+int4:32/256": 255}
"""Maximum number of registers per thread for tiles of 1024 values and of 512 rotated values, with 2 blocks per
multiprocessor.

Tiles of 1024 rotated values may use 255 registers, with 1 block per multiprocessor.

Other kernels may use 64 registers, with 4 blocks per multiprocessor.
"""
SHARED = {
    "gpu.cu": 12 * 1024,
    "chunked.cu": 37 * 1024,
    "sparse.cu": 27 * 1024,
    "convert.cu": 12 * 1024,
    "sum.cu": 12 * 1024,
}
"""Shared memory per block in bytes, for 8, 2 or 3 blocks per multiprocessor of sm_70."""
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
Cases = Listed[tuple[str, np.dtype[Any]]]
CASES: Cases = [
    *((name, F32) for name in ("zfp:4", "zfp:8", "zfp:13", "zfp:16", "zfp:24", "zfp:32")),
    *((name, F32) for name in ("int8:256", "int8:1024", "int8:32:stochastic", "int4:256", "sign:128", "sign:1024")),
    *(
        (name, F32)
        for name in (
            "int4:32/256",
            "int4:16/256:nonuniform:stochastic",
            "int4:32/256:nonuniform:correlated",
            "int3:16/256",
            "int2:16/256",
            "rotate256+int4:32/256",
            "rotate512+int4:32/256",
            "rotate1024+int4:32/256",
            "mxfp8:e4m3",
            "mxfp6:e2m3:even",
            "mxfp4:rceil",
            "nvfp4",
        )
    ),
    *((name, F32) for name in ("fp16", "bf16", "fp8e4m3", "2:4")),
    ("zfp:8", F16),
    ("int8:256", BFLOAT16),
    ("fp8e5m2", BFLOAT16),
    ("2:4", F16),
    ("mpc", F32),
    ("mpc", F16),
    *(("xpk", dtype) for dtype in (F32, F16, BFLOAT16)),
    ("topk:0.01", F32),
    ("threshold:0.01", F32),
    ("rowsparse:64", F32),
    *((f"as {sent}", values) for values, sent in (*PAIRS, (F32, F32))),
    *(("sum", dtype) for dtype in SUMMED),
]
"""Kernels to compile: codecs, conversions by dtype, and sums."""
SAMPLE: Cases = [
    *((name, F32) for name in ("zfp:13", "int8:1024", "int4:256", "sign:1024", "fp8e4m3", "2:4", "mpc", "xpk")),
    *((name, F32) for name in ("int4:16/256:nonuniform:stochastic", "mxfp6:e2m3:even", "nvfp4")),
    *((name, F32) for name in ("topk:0.01", "threshold:0.01", "rowsparse:64", "sum")),
    ("as bfloat16", F32),
]
"""One case per family, with the family's largest kernels."""


def name_of(case: tuple[str, np.dtype[Any]]) -> str:
    return f"{case[0]} {case[1]}"


def front_of(name: str) -> Sequence:
    if name.startswith("sum "):
        return SUMS
    return CONVERSIONS if name.startswith("as ") else sequence_of(name.split(" ")[0].partition(":")[0])


def build(name: str, dtype: np.dtype[Any]) -> Build:
    if name.startswith("as "):
        return convert.build_of(dtype, np.dtype(name.removeprefix("as ")))
    if name == "sum":
        return convert.sum_build_of(dtype)
    return build_of(name, dtype, dtype)


def cases_of(arch: str) -> Cases:
    return CASES if arch == OLDEST else SAMPLE


def compile_cases(arch: str, cases: Cases | None = None, kernels: Path = KERNELS) -> dict[str, dict[str, Kernel]]:
    """Return resource usage by case and kernel. Uncached cases are compiled in a separate process."""
    cases = cases_of(arch) if cases is None else cases
    builds = [build(name, dtype) for name, dtype in cases]
    jobs = [(job.source, [f"-arch={arch}", *job.options()]) for job in builds]

    def compile_them(target: Path) -> None:
        folder = kernels / "gpu"
        work = [(str(folder / source), [*options, f"-I{folder}"]) for source, options in jobs]
        given = json.dumps({"major": ARCHITECTURES[arch], "jobs": work})
        done = subprocess.run([sys.executable, str(NVRTC)], input=given, capture_output=True, text=True)
        if done.returncode:
            errors = " ".join(done.stderr.split("ValueError:")[-1].split())
            raise ValueError(f"{arch}: {name_of(cases[len(done.stdout.splitlines())])}: {errors[:2000]}")
        target.write_text(done.stdout)

    output = cache_file(
        [*jobs, version(ARCHITECTURES[arch]), digest(kernels, NVRTC)], ".json", compile_them
    ).read_text()
    kernels_by_line = [
        {name: Kernel(**values) for name, values in json.loads(line).items()} for line in output.splitlines()
    ]
    return {name_of(case): kernels for case, kernels in zip(cases, kernels_by_line, strict=True)}


def version(major: int) -> tuple[str, int]:
    """Return the version of the installed compiler."""
    library = library_path(major)
    assert library, f"no NVRTC of CUDA {major}"
    return library.resolve().name, library.stat().st_size


def compile_all(architectures: Iterable[str] = ARCHITECTURES) -> dict[str, dict[str, dict[str, Kernel]]]:
    """Return resource usage by architecture. Two architectures are compiled at a time."""
    chosen = list(architectures)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(chosen, pool.map(compile_cases, chosen), strict=True))


def sizes(compiled: dict[str, dict[str, Kernel]]) -> dict[str, dict[str, int]]:
    return {case: {name: kernel.instructions for name, kernel in kernels.items()} for case, kernels in compiled.items()}


def wasteful(compiled: dict[str, dict[str, Kernel]]) -> list[str]:
    """Return the kernels that use local memory, or exceed the limits for registers or shared memory."""
    complaints = []
    for case, kernels in compiled.items():
        most = REGISTERS.get(case.split(" ")[0], 64)
        shared = SHARED[front_of(case).source]
        for name, kernel in kernels.items():
            if kernel.stack or kernel.registers > most or kernel.shared > shared:
                complaints.append(f"{case}, {name}: {kernel}, at most {most} registers")
    return complaints


def grown(actual: dict[str, dict[str, int]], recorded: dict[str, dict[str, int]]) -> list[str]:
    """Return the kernels with over 5 % more instructions than recorded."""
    return [
        f"{case}, {name}: {count} instructions, {recorded[case][name]} known"
        for case, kernels in actual.items()
        for name, count in kernels.items()
        if count > GROWTH * recorded[case][name]
    ]


@pytest.fixture(scope="module", autouse=True)
def _possible(need: Callable[[str | None], None]) -> None:
    has_wheel = platform.machine() in ("x86_64", "aarch64")
    need(None if has_wheel else f"compiling for GPUs needs NVRTC, which has no wheel for {platform.machine()}")


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest) -> dict[str, dict[str, dict[str, Kernel]]]:
    """Compile kernels for the requested architectures."""
    chosen = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    return compile_all(dict.fromkeys(call.params["arch"] for call in chosen if call and "arch" in call.params))


@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=() if arch == OLDEST else pytest.mark.long) for arch in ARCHITECTURES]
)
def test_compiles_stays_in_registers_and_does_not_grow(
    arch: str, compiled: dict[str, dict[str, dict[str, Kernel]]]
) -> None:
    kernels_here, recorded = compiled[arch], json.loads(SIZES.read_text())[arch]
    assert set(recorded) == set(kernels_here) == {name_of(case) for case in cases_of(arch)}, (
        f"run {Path(__file__).name} to write {SIZES.name} again"
    )
    for case, kernels in kernels_here.items():
        assert set(kernels) >= {kernel for kernels in front_of(case).kernels.values() for kernel in kernels}, case
    assert not wasteful(kernels_here)
    assert not grown(sizes(kernels_here), recorded), (
        f"if this is intended, run {Path(__file__).name} to write {SIZES.name} again"
    )


def test_spilled_registers_are_detected(tmp_path: Path) -> None:
    kernels = plant_fault(tmp_path, "gpu/gpu.cu", "__launch_bounds__(HB_THREADS, hb_resident)", "__maxnreg__(32)")
    assert wasteful(compile_cases("sm_90", [("int8:1024", F32)], kernels))


def test_a_size_that_grew_is_detected() -> None:
    recorded = json.loads(SIZES.read_text())["sm_90"]
    bigger = {
        case: {name: int(count * 1.06) + 1 for name, count in kernels.items()} for case, kernels in recorded.items()
    }
    assert len(grown(bigger, recorded)) == sum(map(len, recorded.values()))
    assert not grown(recorded, recorded)


def test_options_keep_subnormal_values() -> None:
    """Appending -ftz=false does not change the compiler's output, but appending -ftz=true does."""
    build = convert.sum_build_of(F32)
    program = (
        "import hashlib, json, sys; from pathlib import Path; from nvrtc import Compiler\n"
        "source, *options = json.loads(sys.argv[1]); compiler = Compiler(13)\n"
        "for last in ([], ['-ftz=false'], ['-ftz=true']):\n"
        "    print(hashlib.sha256(compiler.compile(Path(source), options + last)).hexdigest())\n"
    )
    given = json.dumps([str(KERNELS / "gpu" / build.source), "-arch=sm_90", *build.options()])
    command = [sys.executable, "-c", program, given]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=NVRTC.parent)
    plain, keeps, flushes = done.stdout.split()
    assert plain == keeps != flushes


def test_an_error_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sm_75: zfp:4 float32: .*no_such_name"):
        compile_cases("sm_75", CASES, plant_fault(tmp_path, "gpu/gpu.cu", "hb_front::encode(x", "no_such_name(x"))


if __name__ == "__main__":
    everything = compile_all()
    SIZES.write_text(json.dumps({arch: sizes(by_name) for arch, by_name in everything.items()}, indent=1) + "\n")
    for arch, by_name in everything.items():
        print(arch, *wasteful(by_name), sep="\n  ")
