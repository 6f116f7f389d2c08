"""What docs/tutorial/slurm.md tells a newcomer to type works on a real Slurm, and prints what the page shows."""

from pathlib import Path

import pytest
from typed_pages import blocks, run_page

from hpcbench.testing.slurm import Cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "slurm.md"


@pytest.mark.long
def test_every_line_of_the_tutorial(cluster: Cluster, tmp_path: Path) -> None:
    commands, files = run_page(PAGE, tmp_path)
    assert (commands >= 10, files) == (True, 1)


def test_only_the_installation_is_not_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (installing,) = [content for language, content, _ in blocks(text) if language == "sh"]
    assert [line.split()[0] for line in installing.splitlines()] == ["git", "python3", "pip"]
    assert text.count("```") == 2 * len(list(blocks(text)))
