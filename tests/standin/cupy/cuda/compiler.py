"""A compiler that stores source and options unchanged. `cupy.modules` compiles and runs the source."""

import json


def compile_using_nvrtc(source: str, options: tuple[str, ...] = (), arch: str | None = None) -> tuple[bytes, None]:
    """Return the "cubin" of a source."""
    if not isinstance(source, str) or not isinstance(options, tuple) or not all(isinstance(o, str) for o in options):
        raise TypeError("source is a string, options are a tuple of strings")
    assert arch in (None, "90"), arch
    return json.dumps({"source": source, "options": options}).encode(), None
