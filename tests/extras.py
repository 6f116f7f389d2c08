"""Processes that import only what an installation of hpcbench with some extras would bring."""

import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = {"hpcbench", "pip", "setuptools"}
"""Distributions that a new environment has, and the one that is installed."""
GUARD = '''\
"""Written by a test: modules of packages that the installation would not bring cannot be imported."""

import sys

REFUSED = {refused!r}


class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Guard())
'''


def requirements(extras: Iterable[str], project: dict[str, object] | None = None) -> set[str]:
    """Return the names of all distributions that an installation with these extras has.

    Parameters
    ----------
    extras
        Extras of hpcbench.
    project
        Table `project` of a pyproject file; None for that of this checkout.
    """
    project = project or tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    names: set[str] = set()
    todo = [(Requirement(text), "") for text in project["dependencies"]]
    todo += [(Requirement(text), extra) for extra in extras for text in optional[extra]]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name == "hpcbench":
            todo += [(Requirement(text), each) for each in requirement.extras for text in optional[each]]
        elif name not in names or requirement.extras:
            names.add(name)
            needed = distribution(name).requires or []
            todo += [(Requirement(text), each) for each in ("", *requirement.extras) for text in needed]
    return names | ALWAYS


def write_guard(directory: Path, installed: set[str]) -> Path:
    """Write a `sitecustomize` that refuses all modules of other distributions; returns the directory for PYTHONPATH."""
    brought, others = set[str](), set[str]()
    for each in distributions():
        (brought if canonicalize_name(each.metadata["Name"]) in installed else others).update(_modules(each))
    directory.mkdir()
    text = GUARD.format(refused=sorted(others - brought))
    (directory / "sitecustomize.py").write_text(text, encoding="utf-8")
    return directory


def _modules(distribution: Distribution) -> set[str]:
    """Return the names of the distribution's top-level modules."""
    paths = [path for path in distribution.files or () if path.parts[0] not in ("..", "__pycache__")]
    names = {path.parts[0] if len(path.parts) > 1 else path.name.partition(".")[0] for path in paths}
    return {name for name in names if name.isidentifier()}
