"""What messages and pages tell people to install."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("hpcbench", "docs", "studies", "sites", "templates", "benchmarks", "README.md", "Makefile")
ARGUMENT = r"\s+['\"]?[\w./<>=~-]+(?:\[[\w,]*\])?['\"]?"
FROM_AN_INDEX = re.compile(rf"pip install(?:{ARGUMENT})*?\s+['\"]?hpcbench(?:\[[\w,]*\])?(?=['\"\s`,;:]|$)")
"""`pip install` of a distribution named hpcbench: the one that package indexes have is another project."""


def texts() -> list[Path]:
    """All files that tell people something."""
    roots = [ROOT / place for place in PLACES]
    files = [file for root in roots for file in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [file for file in files if file.is_file() and file.suffix not in (".pyc", ".so", ".png", ".npz")]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("pip install 'hpcbench[report]'", True),
        ("pip install hpcbench", True),
        ("`pip install -U hpcbench[train]`", True),
        ("python -m pip install --upgrade hpcbench,", True),
        ("pip install './hpcbench[cluster]'", False),
        ("pip install '.[train]', in a checkout of hpcbench", False),
        ("pip install matplotlib", False),
    ],
)
def test_the_expression_sees_what_it_should(text: str, refused: bool) -> None:
    assert bool(FROM_AN_INDEX.search(text)) is refused


def test_nobody_is_sent_to_the_package_of_another_project() -> None:
    assert len(texts()) > 500
    places = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in texts()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if FROM_AN_INDEX.search(line)
    ]
    assert not places, "\n".join(places)
