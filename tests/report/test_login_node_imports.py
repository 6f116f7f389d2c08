"""Tests that modules for login nodes import neither torch nor MPI."""

import subprocess
import sys


def test_reports_and_predictions_need_nothing_heavy() -> None:
    code = (
        "import sys, hpcbench.report.main, hpcbench.report.live, hpcbench.predict.volume;"
        "print([m for m in ('torch', 'numpy', 'scipy', 'mpi4py', 'cupy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_only_the_terminal_needs_rich() -> None:
    code = (
        "import sys, hpcbench.report.main, hpcbench.report.build;"
        "from hpcbench.report.formats import csv_rows, json_document;"
        "from hpcbench.present import latex, markdown, results;"
        "print([m for m in ('rich', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
