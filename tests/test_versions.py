"""Tests of hpcbench's revision: the checkout's, or the revision from which an installed package was built."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import explain_missing

from hpcbench.versions import package_revision


@pytest.fixture
def package(tmp_path: Path, need: Callable[[str | None], None]) -> Path:
    """A package that is inside a git checkout but not tracked, as in an environment inside a user's project."""
    need(explain_missing("git"))
    package = tmp_path / "site-packages" / "hpcbench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "theirs")
    return package


def git(directory: Path, *command: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    done = subprocess.run(["git", "-C", directory, *who, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_an_installed_package_has_the_revision_that_it_was_built_from(package: Path) -> None:
    assert package_revision(package) is None, "the project around it has a revision, which is not hpcbench's"
    (package / "_data").mkdir()
    (package / "_data" / "revision.txt").write_text("c0ffee-dirty\n")
    assert package_revision(package) == "c0ffee-dirty"


def test_a_checkout_has_its_revision_of_now_even_after_a_build(package: Path) -> None:
    (package / "_data").mkdir()
    (package / "_data" / "revision.txt").write_text("c0ffee")
    git(package, "add", "__init__.py")
    git(package, "commit", "-q", "-m", "ours")
    head = git(package, "rev-parse", "HEAD")
    assert package_revision(package) == head
    (package / "__init__.py").write_text("changed")
    assert package_revision(package) == f"{head}-dirty"
