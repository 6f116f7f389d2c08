"""Tests that the recipes for Spack and conda have the dependencies, version and license of pyproject.toml."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpcbench.study.yaml12 import read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
SPACK = ROOT / "packaging" / "spack" / "spack_repo" / "hpcbench"
CONDA = {"torch": "pytorch", "ml-dtypes": "ml_dtypes", "xxhash": "python-xxhash", "matplotlib": "matplotlib-base"}
"""Names on conda-forge that differ from the names on PyPI."""


def needed(*extras: str) -> dict[str, str]:
    """Return the version of each dependency of these extras, without ``>=``.

    Without extras, return the dependencies of every installation.
    """
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    requirements = map(Requirement, lines or PROJECT["dependencies"])
    return {canonicalize_name(each.name): str(each.specifier) for each in requirements}


class Recipe:
    """Directives of a Spack recipe, recorded when the body of the recipe's class calls them."""

    def __init__(self, path: Path) -> None:
        self.whens: list[str] = []
        self.depends: dict[str, dict[str, str]] = {}
        """Versions of dependencies by name, for each condition."""
        self.types: dict[str, Any] = {}
        self.default: dict[str, Any] = {}
        self.words: dict[str, list[tuple[Any, ...]]] = {}
        spack = ModuleType("spack.package")
        directives = {name: self._keep(name) for name in ("license", "version", "variant", "maintainers")}
        vars(spack).update(
            directives, depends_on=self._depends_on, when=self._when, default_args=self._default_args, join_path=None
        )
        builtin = ModuleType("spack_repo.builtin.build_systems.python")
        vars(builtin)["PythonPackage"] = type("PythonPackage", (), {})
        fake = {"spack.package": spack, builtin.__name__: builtin}
        parents = ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems")
        fake |= {name: ModuleType(name) for name in parents}
        before = {name: sys.modules.get(name) for name in fake}
        sys.modules.update(fake)
        try:
            exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {})
        finally:
            for name, module in before.items():
                sys.modules.pop(name)
                if module:
                    sys.modules[name] = module

    def _keep(self, name: str) -> Any:
        return lambda *words, **_: self.words.setdefault(name, []).append(words)

    def _depends_on(self, spec: str, when: str = "", **options: Any) -> None:
        name, _, version = spec.partition("@")
        condition = " ".join([*self.whens, *([when] if when else [])])
        self.depends.setdefault(condition, {})[name] = version
        self.types[name] = {**self.default, **options}["type"]

    @contextmanager
    def _when(self, condition: str) -> Iterator[None]:
        self.whens.append(condition)
        yield
        self.whens.pop()

    @contextmanager
    def _default_args(self, **options: Any) -> Iterator[None]:
        before, self.default = self.default, options
        yield
        self.default = before


def in_spack(versions: dict[str, str]) -> dict[str, str]:
    """Convert dependencies to Spack's names. In Spack, version ``1.5`` includes 1.5.4, like ``>=1.5,<1.6``."""
    assert versions.get("submitit", "<1.6,>=1.5") == "<1.6,>=1.5"
    plain = {f"py-{name.replace('.', '-')}": version for name, version in versions.items() if name != "submitit"}
    assert all(version.startswith(">=") and "," not in version for version in plain.values())
    ours = {name: f"{version[2:].removesuffix('.0')}:" for name, version in plain.items()}
    return ours | ({"py-submitit": "1.5"} if "submitit" in versions else {})


def in_conda(versions: dict[str, str]) -> set[str]:
    """Convert dependencies to conda-forge's names."""
    ordered = {name: ",".join(sorted(version.split(","), reverse=True)) for name, version in versions.items()}
    return {
        f"{CONDA.get(name, name.replace('ruamel-yaml', 'ruamel.yaml'))} {version}" for name, version in ordered.items()
    }


def test_the_recipe_for_spack_has_the_dependencies_of_the_project() -> None:
    recipe = Recipe(SPACK / "packages" / "py_hpcbench" / "package.py")
    always, build = dict(recipe.depends[""]), {}
    for name, kind in recipe.types.items():
        assert kind == "build" or set(kind) == {"build", "run"}
        if kind == "build":
            build[name] = always.pop(name)
    (python,) = (always.pop("python"),)
    assert f">={python.removesuffix(':')}" == PROJECT["requires-python"]
    assert always == in_spack(needed())
    assert recipe.depends["+train"] == in_spack(needed("train"))
    assert recipe.depends["+report"] == in_spack(needed("report"))
    (backend,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    assert build[f"py-{backend.name}"] == f"{str(backend.specifier)[2:]}:"
    assert build["cmake"] == f"{PYPROJECT['tool']['scikit-build']['cmake']['version'][2:]}:"
    assert recipe.words["license"] == [(PROJECT["license"],)]
    assert recipe.words["version"] == [(PROJECT["version"],)]
    assert {name for name, *_ in recipe.words["variant"]} == {"train", "report"}


def test_recipes_of_packages_that_spack_lacks_satisfy_the_project() -> None:
    names = {path.name for path in (SPACK / "packages").iterdir()} - {"py_hpcbench"}
    assert names == {"py_ijson", "py_submitit"}
    for name in sorted(names):
        recipe = Recipe(SPACK / "packages" / name / "package.py")
        wanted = Requirement(f"x{needed()[name.removeprefix('py_')]}").specifier
        assert all(wanted.contains(version) for (version,) in recipe.words["version"])


def test_the_recipe_for_conda_has_the_dependencies_of_the_project() -> None:
    recipe = read(ROOT / "packaging" / "conda" / "recipe.yaml").data
    run, others = recipe["requirements"]["run"], recipe["requirements"]["run_constraints"]
    assert set(run) == {f"python {PROJECT['requires-python']}", *in_conda(needed())}
    assert set(others) == in_conda(needed("train", "report"))
    assert {*PYPROJECT["build-system"]["requires"]} <= {
        line.replace(" ", "") for line in recipe["requirements"]["host"]
    }
    assert f"cmake {PYPROJECT['tool']['scikit-build']['cmake']['version']}" in recipe["requirements"]["build"]
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert (ROOT / recipe["about"]["license_file"]).is_file()


def test_all_places_have_the_oldest_pytorch() -> None:
    from hpcbench.doctor import probe
    from hpcbench.programs import intercept
    from hpcbench.train import preflight

    for extra, oldest in (("train", {preflight.OLDEST_TORCH, probe.OLDEST_TORCH}), ("torch", {intercept.OLDEST})):
        assert {f">={'.'.join(map(str, each))}" for each in oldest} == {needed(extra)["torch"]}


def test_all_places_have_the_version_of_the_project() -> None:
    import hpcbench

    citation = read(ROOT / "CITATION.cff").data
    spack = (SPACK / "packages" / "py_hpcbench" / "package.py").read_text(encoding="utf-8")
    assert {hpcbench.__version__, str(citation["version"])} == {PROJECT["version"]}
    assert f"hpcbench-{PROJECT['version']}.tar.gz" in spack
