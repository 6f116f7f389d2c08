"""Tests of the package order: a package imports only packages below it, and modules have no import cycles.

The order follows the flow of data, from the login node to the run and then to the evaluation. `contract` is near the
bottom, because both sides of a job script import it.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import hpcbench

GROUND = (
    "hpcbench",
    "errors",
    "versions",
    "resources",
    "console",
    "files",
    "secret_variables",
    "plot_style",
    "plot_labels",
)
"""List modules outside features that import parts of features."""
HOUSE = (
    *GROUND,
    *("codecs", "contract", "present", "study", "batch", "job", "collect", "comm", "parallel", "predict", "train"),
    *("programs", "torch", "bench", "report", "doctor", "testing", "diagnose", "tune", "cli", "__main__"),
)
"""Packages from bottom to top."""
PARTS = {
    **dict.fromkeys(("settings", "rules", "events"), "contract"),
    "engine": "parallel",
    "traffic": "predict",
    "observer": "train",
    "report": "report",
}
"""Package of each part of a feature, by the part's file or directory name."""
LOGIN = ("settings", "rules", "events", "traffic", "report")
"""Parts of features that login nodes import."""
NAME_FEATURES = {
    *("contract.training", "contract.layout", "contract.events", "study.idle"),
    *("predict.buckets", "predict.calls", "train.build", "train.__main__"),
    *("report.checks.notes", "report.quantities.catalogue", "report.tables"),
    *("report.tables.comparison", "report.formats.csv_rows"),
    *("programs.rank", "programs.network"),  # a program has no loop that an observer could follow
}
"""Modules that connect features to other packages."""
CONTRACT_MAY = ("hpcbench.contract", "hpcbench.codecs.spec", "hpcbench.errors", "hpcbench.files", "pydantic", "pynvml")
"""List imports of the contract that are not allowed."""

Sources = Mapping[str, str]
"""The text of each module, by its full name."""


def sources() -> dict[str, str]:
    root = Path(hpcbench.__file__).parent
    packages = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        packages[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return packages


@cache
def statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(text: str, modules: Sources) -> Iterator[str]:
    """Return the modules that a source text imports anywhere, including in functions or only for types."""
    for node in statements(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, "imports name the whole module"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else str(node.module)


def graph(modules: Sources) -> dict[str, set[str]]:
    """Return the modules of hpcbench that each module imports."""
    return {
        name: {other for other in imported(text, modules) if other.partition(".")[0] == "hpcbench"} - {name}
        for name, text in modules.items()
    }


def room(module: str) -> str:
    """Return the package of a module. `PARTS` assigns parts of features to packages by name."""
    parts = module.split(".")
    if parts[:2] == ["hpcbench", "features"]:
        return next((PARTS[part] for part in parts[2:] if part in PARTS), "contract")
    return parts[1] if len(parts) > 1 else parts[0]


def upward(modules: Sources) -> set[tuple[str, str]]:
    """List imports of packages above the importer."""
    return {
        (name, other)
        for name, others in graph(modules).items()
        for other in others
        if HOUSE.index(room(other)) > HOUSE.index(room(name))
    }


def circles(modules: Sources) -> list[tuple[str, ...]]:
    """List groups of modules that import each other in a cycle."""
    edges = graph(modules)
    left = set(edges)
    while free := {name for name in left if not edges[name] & left}:
        left -= free  # a module without remaining imports is not in a cycle

    def reached(start: str) -> set[str]:
        loaded, ahead = set[str](), [start]
        while ahead:
            new = (edges[ahead.pop()] & left) - loaded
            loaded |= new
            ahead += new
        return loaded

    ways = {name: reached(name) for name in left}
    return sorted({tuple(sorted(other for other in ways[name] if name in ways[other])) for name in left} - {()})


def strange(modules: Sources) -> set[tuple[str, str]]:
    """List imports of the contract that are not allowed."""
    return {
        (name, other)
        for name, text in modules.items()
        if room(name) == "contract"
        for other in imported(text, modules)
        if not other.startswith(CONTRACT_MAY) and other.partition(".")[0] not in sys.stdlib_module_names
        if not (other.startswith("hpcbench.features") and room(other) == "contract")
    }


def naming(modules: Sources) -> set[str]:
    """List modules outside features that import parts of features."""
    return {
        name.removeprefix("hpcbench.")
        for name, others in graph(modules).items()
        if not name.startswith("hpcbench.features") and any(other.startswith("hpcbench.features") for other in others)
    }


def test_every_package_has_its_place() -> None:
    assert {room(name) for name in sources()} <= set(HOUSE)
    assert len(sources()) > 300 and {room(name) for name in sources()} > {"contract", "comm", "report"}


def test_nothing_imports_what_stands_above_it() -> None:
    assert upward(sources()) == set()


def test_there_are_no_circles() -> None:
    assert circles(sources()) == []


def test_the_contract_imports_nothing_heavy() -> None:
    assert strange(sources()) == set()


def test_features_are_connected_in_few_places() -> None:
    assert naming(sources()) == NAME_FEATURES


def test_parts_of_features_for_login_nodes_need_nothing_heavy() -> None:
    """Whether a part is needed on a login node follows from its name, which shows where the part runs."""
    names = [name for name in sources() if name.startswith("hpcbench.features.") and {*name.split(".")} & {*LOGIN}]
    assert {"hpcbench.features.prune.traffic", "hpcbench.features.energy.report.table"} < {*names}
    code = (
        f"import sys, {', '.join(names)};"
        "print([m for m in ('torch', 'numpy', 'mpi4py', 'cupy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_programs_of_others_need_no_mpi() -> None:
    """The environments of users' programs contain PyTorch (extra `torch`), but neither mpi4py nor CuPy."""
    names = [name for name in sources() if name.startswith(("hpcbench.programs", "hpcbench.torch"))]
    assert {"hpcbench.programs.intercept", "hpcbench.programs.streamed_group"} < {*names}
    code = f"import sys; sys.modules.update(mpi4py=None, cupy=None); import {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "line", "sees"),
    [
        ("hpcbench.study.schema", "from hpcbench.train import model", upward),
        ("hpcbench.contract.run", "from hpcbench.study.schema import Study", upward),
        ("hpcbench.predict.volume", "def late():\n    import hpcbench.train.trainer", upward),
        ("hpcbench.comm.links", "def late():\n    from hpcbench.comm.plan_time import seconds", circles),
        ("hpcbench.contract.section", "from hpcbench.contract import rules", circles),
        ("hpcbench.contract.layout", "def late():\n    import numpy as np", strange),
        ("hpcbench.features.energy.events", "import torch", strange),
        ("hpcbench.features.prune.rules", "from hpcbench.features.prune.engine import masks", upward),
        ("hpcbench.train.loop", "from hpcbench.features.energy.observer import energy", naming),
        ("hpcbench.contract.scheme", "from hpcbench.codecs.registry import get_codec", strange),
    ],
)
def test_a_planted_import_is_seen(name: str, line: str, sees: object) -> None:
    modules = sources()
    before = sees(modules)  # type: ignore[operator]
    assert sees({**modules, name: f"{modules[name]}\n{line}\n"}) != before  # type: ignore[operator]


def test_files_of_tests_have_names_of_their_own() -> None:
    """Helpers are imported by their bare names. If two helpers had the same name, only the first would be found."""
    tests = Path(__file__).parents[1]
    packages = {path.parent for path in tests.rglob("__init__.py")}
    names = Counter(path.name for path in tests.rglob("*.py") if not packages.intersection(path.parents))
    assert [name for name, count in names.items() if count > 1] == ["conftest.py"]
