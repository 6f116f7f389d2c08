"""Tests that modules for login nodes import neither torch nor MPI."""

import subprocess
import sys


def test_reports_exports_and_predictions_need_nothing_heavy() -> None:
    code = (
        "import sys, hpcbench.report.main, hpcbench.report.live, hpcbench.report.export.files, hpcbench.predict.volume;"
        "heavy = ('torch', 'numpy', 'scipy', 'mpi4py', 'cupy', 'matplotlib', 'pyarrow');"
        "print([m for m in heavy if m in sys.modules])"
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
