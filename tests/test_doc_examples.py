"""Tests of the examples in the documentation: whole studies can be submitted, and commands have the options shown."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typed_pages import blocks

from hpcbench import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:^|[`$( ])hpcbench ([a-z][^`#|]*)")


def studies() -> Iterator[tuple[str, str]]:
    """Yield the name of the page and the text of each study that is complete."""
    for page in PAGES:
        for _, text, _ in blocks(page.read_text(encoding="utf-8")):
            if re.search(r"^study:", text, re.MULTILINE) and re.search(r"^(model|program):", text, re.MULTILINE):
                yield str(page.relative_to(ROOT)), text


STUDIES = list(studies())


def dry_run(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Write the jobs of a study, with a built-in site in place of the reader's. Return the errors."""
    path = tmp_path / "s.yaml"
    path.write_text(re.sub(r"^site: \./\S*", "site: slurm-cluster", text, flags=re.MULTILINE), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["hpcbench", "submit", str(path), "--dry-run", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code in (0, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize(("page", "text"), STUDIES, ids=[f"{page}-{text.split()[1]}" for page, text in STUDIES])
def test_a_study_on_a_page_can_be_submitted(
    tmp_path: Path, page: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(tmp_path, text, monkeypatch, capsys) == ""


def test_a_study_that_cannot_be_submitted_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {page for page, _ in STUDIES} >= {"README.md", "docs/how-to/torch.md", "docs/tutorial/slurm.md"}
    (readme,) = [text for page, text in STUDIES if page == "README.md"]
    assert "set train.recompute: full" in dry_run(
        tmp_path, readme.replace(", recompute: full", ""), monkeypatch, capsys
    )


def find_unknown_options(text: str) -> list[str]:
    """Return the options of `hpcbench` commands in a text that these commands do not have."""
    unknown = []
    for match in COMMAND.finditer(text):
        command: Any = typer.main.get_command(cli.app)
        arguments = match[1].partition("\n")[0].partition(" -- ")[0].split()
        while arguments and hasattr(command, "commands") and arguments[0] in command.commands:
            command = command.commands[arguments.pop(0)]
        options = {"--help", *(option for each in command.params for option in each.opts)}
        if not hasattr(command, "commands"):
            unknown += [word for word in arguments if re.fullmatch(r"--[a-z][a-z-]*", word) and word not in options]
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_have_the_options_shown(page: Path) -> None:
    assert find_unknown_options(page.read_text(encoding="utf-8")) == []


def test_an_option_that_a_command_does_not_have_is_found() -> None:
    text = "`hpcbench submit s.yaml --dry-rum` $ hpcbench bench codecs --mib 3 --frob\nhpcbench run --dry -- a --b"
    assert find_unknown_options(text) == ["--dry-rum", "--frob"]
