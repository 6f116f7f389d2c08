"""Tests of benchmarks/kept_memory.py: large blocks of freed memory are reused without new pages."""

import subprocess
import sys

from stored_results import ROOT

PAGES = (64 << 20) // 4096
"""The size exceeds 32 MiB, above which glibc by default always requests memory from the system."""
COUNT = f"""
import resource, sys
if sys.argv[1] == "kept":
    from kept_memory import keep_memory
    keep_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(b"x") * {64 << 20}
before = faults()
bytearray(b"x") * {64 << 20}
print(faults() - before)
"""


def test_no_page_is_taken_twice() -> None:
    stored, given_back = (
        int(
            subprocess.run(
                [sys.executable, "-c", COUNT, how], cwd=ROOT / "benchmarks", check=True, capture_output=True
            ).stdout
        )
        for how in ("kept", "given back")
    )
    assert stored < PAGES // 100
    assert given_back > PAGES // 2, "new memory cost nothing: nothing was shown"
