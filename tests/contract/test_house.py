"""The contract lies near the ground: both sides of a job script import it, and it imports neither of them."""

import ast
import sys
from pathlib import Path

import hpcbench.contract

BELOW = ("hpcbench.contract", "hpcbench.codecs.spec", "hpcbench.errors", "hpcbench.files", "pydantic")


def test_it_imports_the_standard_library_and_what_lies_below() -> None:
    files = sorted(Path(hpcbench.contract.__file__).parent.rglob("*.py"))
    assert len(files) > 4
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name.startswith(BELOW) or name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)
