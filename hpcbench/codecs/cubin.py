"""Compiled GPU kernels, cached in files that all runs share.

CuPy does not compile the source code, because it would use ``-ftz=true``, which flushes subnormal float32 values to
zero. CuPy's own disk cache is keyed by source and options, and does not notice changes in included files.
"""

import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from hpcbench.resources import data_dir


def compiled_file(cupy: Any, source: str, options: tuple[str, ...]) -> Path:
    """Return the cubin file for CuPy's current device. The first process that needs the file compiles the kernels.

    Parameters
    ----------
    cupy
        The CuPy module.
    source
        File name in kernels/gpu. The options must contain this directory as an include path.
    options
        NVRTC options, without the architecture.
    """
    from cupy.cuda import compiler

    versions = cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion(), _source_hash()
    key = hashlib.sha256(f"{source} {options} {versions}".encode()).hexdigest()[:32]
    cache = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    path = cache / f"hpcbench-{key}.cubin"
    if not path.is_file():
        # without an architecture, CuPy uses the best one that both device and compiler support
        code, _ = compiler.compile_using_nvrtc(f'#include "{source}"\n', options, None)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)  # atomic for other processes
    return path


@functools.cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(data_dir("kernels").rglob("*")):
        if path.suffix in (".h", ".cu"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
