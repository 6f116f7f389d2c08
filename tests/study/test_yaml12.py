"""Tests of YAML 1.2: scalars that YAML 1.1 would convert remain text, and every error names file and line."""

import math
import re
from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.study import yaml12


def read(tmp_path: Path, content: str | bytes) -> yaml12.YamlDocument:
    path = tmp_path / "file.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return yaml12.read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:00", "12:00"),  # YAML 1.1: 720
        ("1:30:00", "1:30:00"),  # 5400
        ("no", "no"),  # False
        ("off", "off"),
        ("y", "y"),
        ("1e3", 1000.0),  # a string
        ("0.97e-4", 0.97e-4),
        ("010", 10),  # 8
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),  # 1000
        ("0b11", "0b11"),  # 3
        ("2026-11-21", "2026-11-21"),  # a date
        ("true", True),
        ("True", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("-.5", -0.5),
        ("+3", 3),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1.", 1.0),
        (".", "."),
        ("+", "+"),
        ("=", "="),
        ("<<", "<<"),
        ("1" * 200, "1" * 200),  # too large for a run
    ],
)
def test_plain_scalars_follow_the_core_schema(tmp_path: Path, text: str, value: object) -> None:
    parsed = read(tmp_path, f"a: {text}\n").data["a"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_nan_is_a_number(tmp_path: Path) -> None:
    assert math.isnan(read(tmp_path, "a: .nan\n").data["a"])


def test_every_value_has_its_line(tmp_path: Path) -> None:
    document = read(tmp_path, "# comment\na:\n  b: 1\n  c: [x,\n    y]\nd: {e: 2}\n")
    name = str(tmp_path / "file.yaml")
    expected = {("a",): 2, ("a", "b"): 3, ("a", "c"): 4, ("a", "c", 0): 4, ("a", "c", 1): 5, ("d",): 6, ("d", "e"): 6}
    assert document.origins == {path: f"{name}:{line}" for path, line in expected.items()}
    assert document.where(("a", "b", "unknown")) == f"{name}:3"
    assert document.where(("z",)) == name


def test_aliases_repeat_what_they_name(tmp_path: Path) -> None:
    assert read(tmp_path, "a: &x [1, 2]\nb: *x\n").data == {"a": [1, 2], "b": [1, 2]}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("", None, "is empty"),
        ("\n\n", None, "is empty"),
        ("# only a comment\n", 1, "found nothing"),
        ("- a\n- b\n", 1, "found a list"),
        ("just words\n", 1, "found 'just words'"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice"),
        ("a:\n\tb: 1\n", 2, "tab"),
        ("a: [1, 2\nb: 3\n", 1, "the bracket in 'a: [1, 2' is not closed"),
        ("a: 'x\n", 1, "is not closed: add the second quote"),
        ("a: b: c\n", 1, "'a: b: c' is indented too deep, or has a second `: `"),
        ("a: 1\n  b: 2\n", 2, "'b: 2' is indented too deep"),
        ("a:\n  b: 2\n c: 3\n", 3, "the indentation of 'c: 3' matches no section above"),
        ("a: 1\nb = 2\n", 2, "'b = 2' is not `key: value`"),
        ("a: @b\n", 1, "a value must not begin with '@': put it in quotes"),
        ("a:\tb\n", 1, "not YAML: it contains a tab"),
        ("a: {{ name }}\n", 1, "{{ ... }} is not filled in here: write the value itself"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tag"),
        ("a: !secret x\n", 1, "tag"),
        ("? [a, b]\n: 1\n", 1, "a key is a sequence, not a word: write a word"),
        ("a: *nope\n", 1, "*nope is an alias without an anchor &nope above it"),
        ("a: &x [*x]\n", 1, "*x is used before"),
        (BOMB, 5, "values"),
        ("a: " + "[" * 40 + "]" * 40 + "\n", 1, "nested deeper"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", 1, "not UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "control character"),
        (b"a: 1\n" + b"#" * (1 << 20), None, "larger than 1 MiB"),
    ],
)
def test_faults_are_one_line_with_their_place(
    tmp_path: Path, content: str | bytes, line: int | None, says: str
) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    place = str(tmp_path / "file.yaml") + ("" if line is None else f":{line}")
    assert re.match(re.escape(place) + ": ", message), message
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing.yaml", "no such file"),
        (".", "is a directory"),
        ("/proc/self/mem", "cannot be read"),
        ("x" * 300, "cannot"),
    ],
)
def test_an_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=says):
        yaml12.read(Path(path))


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(UserError, match="larger than 1 MiB"):
        yaml12.read(Path("/dev/zero"))


def test_odd_names_stay_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        yaml12.read(tmp_path / "a\nb\x1b[31m.yaml")
    assert str(caught.value).isprintable()
