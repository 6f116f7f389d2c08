"""Names of codecs."""

import subprocess
import sys

import pytest

from hpcbench.codecs.spec import parse


@pytest.mark.parametrize(
    ("name", "family", "parameter", "canonical", "lossless"),
    [
        ("none", "none", None, "none", True),
        ("zfp:4", "zfp", 4, "zfp:4", False),
        ("zfp:32", "zfp", 32, "zfp:32", False),
        ("zfp:08", "zfp", 8, "zfp:8", False),
        ("mpc", "mpc", 1, "mpc", True),
        ("mpc:1", "mpc", 1, "mpc", True),
        ("mpc:32", "mpc", 32, "mpc:32", True),
    ],
)
def test_known(name: str, family: str, parameter: int | None, canonical: str, lossless: bool) -> None:
    spec = parse(name)
    assert (spec.family, spec.parameter, spec.name, spec.lossless) == (family, parameter, canonical, lossless)
    assert parse(spec.name) == spec


@pytest.mark.parametrize(
    "name",
    [
        "",
        "None",
        "zfp",
        "zfp:",
        "zfp:3",
        "zfp:33",
        "zfp:8.5",
        "zfp:-8",
        "zfp:8 ",
        "zfp:8\n",
        "mpc:0",
        "mpc:33",
        "none:1",
        "zfp:٨",
        "lz4",
        "mpc:",
        "zfp:1000000000000",
        "$(zfp:8)",
    ],
)
def test_unknown(name: str) -> None:
    with pytest.raises(ValueError, match="zfp:R with R from 4 to 32") as caught:
        parse(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 8, ["mpc"], 1.5])
def test_not_a_string(name: object) -> None:
    with pytest.raises(ValueError, match="unknown codec"):
        parse(name)  # type: ignore[arg-type]


def test_a_login_node_needs_no_numpy() -> None:
    code = (
        "import sys, hpcbench.codecs.spec\n"
        "print([m for m in ('numpy', 'torch', 'mpi4py', 'cupy', 'ctypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
