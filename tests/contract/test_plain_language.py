"""Tests that code, tests and documentation follow the rules of `plain_language.py`."""

from pathlib import Path

import plain_language
import pytest
from plain_language import CHECKED, ROOT, check, list_duplicate_types, measure_names

EMPTY_NAMES_AT_MOST = 0.01
VERBS_AT_LEAST = {"hpcbench": 0.55, "benchmarks": 0.3}
"""Minimum fraction of functions whose names begin with a verb.

The other names are domain operators and private nouns.
"""


@pytest.mark.parametrize("name", CHECKED)
def test_code_and_documentation_are_in_plain_language(name: str) -> None:
    offenses = [str(offense) for offense in check([ROOT / name])]
    assert not offenses, "\n".join(offenses)


def test_local_names_say_what_they_hold() -> None:
    for name in ("hpcbench", "benchmarks", "tests"):
        assert measure_names([ROOT / name])["empty local names"] <= EMPTY_NAMES_AT_MOST, name


@pytest.mark.parametrize("name", VERBS_AT_LEAST)
def test_functions_begin_with_a_verb(name: str) -> None:
    share = measure_names([ROOT / name])["functions that begin with a verb"]
    assert share >= VERBS_AT_LEAST[name], f"{share:.1%}; `plain_language.py --verbs {name}` lists the others"


def test_no_two_public_types_share_a_name() -> None:
    assert list_duplicate_types([ROOT / "hpcbench"]) == {}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("module.py", '"""Return it anew."""\n', '1: "anew": write again'),
        ("module.py", 'x = 1\nraise ValueError("rank 3 is no worker")\n', '2: "is no worker": write is not a'),
        ("module.py", "x = 1  # what the run knows\n", '1: "knows": write reports, contains, detects'),
        ("module.py", "found = 1\n", "1: name `found` says nothing about the value"),
        ("module.py", "def f():\n    for one in x:\n        pass\n", "2: name `one` says nothing about the value"),
        ("module.py", "def told():\n    pass\n", "1: function `told` says nothing about the value"),
        ("module.py", "def f(own):\n    pass\n", "1: parameter `own` says nothing about the value"),
        ("page.md", "# Page\n\nSchemes of which one is faster.\n", '3: "of which": write two sentences, or `whose`'),
    ],
)
def test_a_planted_offense_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, message: str
) -> None:
    monkeypatch.setattr(plain_language, "ROOT", tmp_path)
    (tmp_path / file).write_text(text)
    assert [str(offense) for offense in check([tmp_path / file])] == [f"{file}:{message}"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("module.py", 'command = "bench(beside=2, sites=1)"\n'),
        ("page.md", "The value `not shown` of a report.\n\n```\nbeside it\n```\n"),
        ("page.md", "There is no reason to keep it, and it is no longer used.\n"),
    ],
)
def test_code_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert list(check([tmp_path / file])) == []


def test_planted_names_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_language, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("class Part: ...\nclass _Own: ...\ndef count_parts(): ...\nfound = 1\n")
    (tmp_path / "b.py").write_text("class Part: ...\nclass _Own: ...\ndef parts(): ...\nparts = 1\n")
    assert list_duplicate_types([tmp_path]) == {"Part": ["a.py:1", "b.py:1"]}
    assert measure_names([tmp_path]) == {"empty local names": 0.5, "functions that begin with a verb": 0.5}
