"""A login node has neither torch nor MPI."""

import subprocess
import sys


def test_the_report_needs_nothing_heavy() -> None:
    code = (
        "import sys, hpcbench.report.main, hpcbench.report.live;"
        "print([m for m in ('torch', 'numpy', 'mpi4py', 'cupy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
