"""Processes that can import only the packages of an hpcbench installation with given extras."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typed_pages import blocks
from typed_pages import run_page as run_page_with

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = {"hpcbench", "pip", "setuptools"}
"""Distributions of a new environment, and hpcbench."""
GUARD = '''\
"""Written by a test: modules of packages that the installation lacks cannot be imported."""

import os
from importlib.machinery import PathFinder

REFUSED = {refused!r}
find_anywhere = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in REFUSED else find_anywhere(name, path, target)


PathFinder.find_spec = find_spec
if "SLURM_STEP_ID" in os.environ:  # a rank
    open({seen!r}, "a").close()
'''
SEEN = "seen-in-a-step"
"""File that the guard creates next to itself if it runs in a step of a Slurm job."""


def requirements(extras: Iterable[str], project: dict[str, object] | None = None) -> set[str]:
    """Return the names of all distributions that are installed with these extras.

    Parameters
    ----------
    extras
        Extras of hpcbench.
    project
        Table `project` of a pyproject file, or None for the table of this checkout.
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
    """Write a `sitecustomize` that blocks all other distributions. Return the directory for PYTHONPATH."""
    brought, others = set[str](), set[str]()
    for each in distributions():
        (brought if canonicalize_name(each.metadata["Name"]) in installed else others).update(_modules(each))
    directory.mkdir()
    text = GUARD.format(refused=sorted(others - brought), seen=str(directory / SEEN))
    (directory / "sitecustomize.py").write_text(text, encoding="utf-8")
    return directory


def installed_by(page: Path) -> set[str]:
    """Return the names of all distributions installed by the page's `pip install` line."""
    installing = [content for language, content, _ in blocks(page.read_text(encoding="utf-8")) if language == "sh"]
    (extras,) = re.findall(r"^pip install '\./hpcbench\[([\w,]+)\]'", "".join(installing), re.MULTILINE)
    return requirements(extras.split(","))


def run_page(page: Path, directory: Path, variables: Mapping[str, str]) -> tuple[int, int]:
    """Run a page's commands with only the packages that the page installs.

    Return the numbers of commands and files, like `typed_pages`.

    Parameters
    ----------
    page, directory
        Page, and working directory of its commands. The guard is in the subdirectory `guard`.
    variables
        Additional environment variables for the commands.
    """
    guard = write_guard(directory / "guard", installed_by(page))
    paths = [str(guard), *filter(None, [os.environ.get("PYTHONPATH")])]
    return run_page_with(page, directory, {**variables, "PYTHONPATH": os.pathsep.join(paths)})


def _modules(distribution: Distribution) -> set[str]:
    """Return the names of the distribution's top-level modules."""
    paths = [path for path in distribution.files or () if path.parts[0] not in ("..", "__pycache__")]
    names = {path.parts[0] if len(path.parts) > 1 else path.name.partition(".")[0] for path in paths}
    return {name for name in names if name.isidentifier()}
