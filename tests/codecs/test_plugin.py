"""Tests that the example codec of docs/reference/codecs.md works by name when another package installs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = (CHECKOUT / "docs" / "reference" / "codecs.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the page's only code block in a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)
    return str(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a directory with the distribution as pip would install it."""
    (tmp_path / "truncation.py").write_text(block("python"), encoding="utf-8")
    head, entry = block("toml").strip().splitlines()
    assert head == '[project.entry-points."hpcbench.codecs"]'
    name, target = re.fullmatch(r'(\w+) = "(\w+:\w+)"', entry).groups()  # type: ignore[union-attr]
    info = tmp_path / "truncation-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: truncation\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[hpcbench.codecs]\n{name} = {target}\n", encoding="utf-8")
    return tmp_path


def python(site: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, with or without the distribution."""
    paths = [str(CHECKOUT), str(site or ""), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


USE = """
import numpy as np
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16

for name, bytes_a_value in (("trunc:2", 2), ("trunc:3", 3)):
    codec = get_codec(name)
    assert codec.name == name
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), BFLOAT16):
        x = np.random.default_rng(0).standard_normal(1001).astype(dtype)
        wire = np.zeros(codec.wire_bytes(x.size, dtype), np.uint8)
        assert codec.encode(x, wire) == wire.size == bytes_a_value * 1001
        y = np.full_like(x, -7)
        codec.decode(wire, y)
        error = np.abs(y.astype(np.float64) - x.astype(np.float64)).max()
        assert error <= codec.error_bound(x), (name, dtype, error)
        assert (error > 0) == (dtype == np.float32 or (name == "trunc:2" and dtype == np.float16))

        total = np.ones(x.size, np.float32)
        codec.decode(wire, total, dtype=dtype, accumulate=True)
        assert np.array_equal(total, np.float32(1) + y.astype(np.float32))

        sums = np.zeros_like(wire)
        assert codec.decode_add_encode(wire, x, sums) == wire.size
        expected = np.zeros_like(wire)
        codec.encode((y.astype(np.float32) + x.astype(np.float32)).astype(dtype), expected)
        assert np.array_equal(sums, expected)

    x, lack = np.full(100, 1 / 3, np.float32), np.zeros(100, np.float32)
    sent, mean = np.zeros(codec.wire_bytes(100, x.dtype), np.uint8), np.zeros(100)
    for _ in range(64):
        codec.encode(x, sent, residual=lack)
        y = np.zeros_like(x)
        codec.decode(sent, y)
        mean += y / 64.0
    assert abs(mean - 1 / 3).max() <= codec.error_bound(x) / 32, "error feedback sends in the end what was held back"

    odd = np.array([np.nan, -np.inf, np.inf, -0.0], np.float32)
    odd.view(np.uint32)[0] = 0x7F800001
    codec.encode(odd, sent)
    back = np.zeros_like(odd)
    codec.decode(sent[: codec.wire_bytes(4, odd.dtype)], back)
    assert np.isnan(back[0]) and back[1] == -np.inf and back[2] == np.inf and np.signbit(back[3])
print("used")
"""


def test_the_example_implements_the_interface(site: Path) -> None:
    done = python(site, "-c", USE)
    assert (done.returncode, done.stdout) == (0, "used\n"), done.stderr


@pytest.mark.parametrize(("name", "says"), [("trunc:9", "2 or 3"), ("trunc", "2 or 3")])
def test_its_own_refusals_are_reported(site: Path, name: str, says: str) -> None:
    done = python(site, "-m", "hpcbench", "bench", "codecs", name, "--mib", "0.01", "--repeats", "1")
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_the_benchmark_measures_it(site: Path) -> None:
    done = python(site, "-m", "hpcbench", "bench", "codecs", "trunc:2", "bf16", "--mib", "0.1", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("trunc:2"))
    assert row[1:3] == ["2.000", "16.00"] and row[-1] == "kept"


STUDY = """
import sys
from hpcbench.contract.scheme import Scheme
scheme = Scheme.model_validate({"default": "trunc:2", "rules": [{"dimension": "DP", "codec": "int8"}]})
print(scheme.default, scheme.rules[0].codec, *sorted({"numpy", "truncation"} & set(sys.modules)))
"""


def test_a_study_may_name_it_without_loading_it_on_a_login_node(site: Path) -> None:
    done = python(site, "-c", STUDY)
    assert (done.returncode, done.stdout) == (0, "trunc:2 int8:256\n"), done.stderr


def test_without_the_package_the_name_is_unknown() -> None:
    done = python(None, "-c", STUDY)
    assert done.returncode == 1 and "unknown codec 'trunc:2'" in done.stderr
