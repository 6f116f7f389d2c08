"""Compiled kernels of a GPU as files, which the processes of all runs share.

CuPy is not given source, because it appends ``-ftz=true`` to the options of all source that it compiles: subnormal
float32 would become zero. What it keeps on disk it finds by source and options, which do not cover included files.
"""

import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from hpcbench.resources import data_dir


def compiled_file(cupy: Any, source: str, options: tuple[str, ...]) -> Path:
    """Return the file of kernels for CuPy's current device. The first process that needs it compiles it.

    Parameters
    ----------
    cupy
        The module.
    source
        Name of the file in kernels/gpu, which is in a folder of the options.
    options
        Options of NVRTC, without the architecture.
    """
    from cupy.cuda import compiler

    versions = cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion(), _source_hash()
    key = hashlib.sha256(f"{source} {options} {versions}".encode()).hexdigest()[:32]
    cache = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    path = cache / f"hpcbench-{key}.cubin"
    if not path.is_file():
        # without an architecture CuPy takes the best one that device and compiler have in common
        code, _ = compiler.compile_using_nvrtc(f'#include "{source}"\n', options, None)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)  # other processes see all of it or nothing
    return path


@functools.cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(data_dir("kernels").rglob("*")):
        if path.suffix in (".h", ".cu"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
