"""Function that runs `hpcbench bench codecs` in this process."""

import sys

import pytest

from hpcbench import cli


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command with a small, quick measurement by default, and return its exit status."""
    quick = [] if "--mib" in arguments else ["--mib", "0.05"]
    monkeypatch.setattr(sys, "argv", ["hpcbench", "bench", "codecs", *quick, *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code
