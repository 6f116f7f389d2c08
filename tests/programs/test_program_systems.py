"""Tests of third-party compression systems on an unmodified program, with bytes counted on virtual interfaces."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.events import AppliedScheme
from hpcbench.testing.hosts import why_not

STUDIES = Path(__file__).parents[2] / "studies"
LIBRARY = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static long calls;

ssize_t send(int socket, const void *data, size_t length, int flags) {
  static ssize_t (*next)(int, const void *, size_t, int);
  if (!next) next = dlsym(RTLD_NEXT, "send");
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  return next(socket, data, length, flags);
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("CALL_COUNTS");
  FILE *file = path && calls ? fopen(path, "a") : NULL;
  if (file) { fprintf(file, "%ld\\n", calls); fclose(file); }
}
"""
SCHEMES = ("baseline", "ddp-bf16", "ddp-powersgd", "counted", "naive-int8")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("systems")


@pytest.fixture(scope="module")
def report(directory: Path, need: Callable[[str | None], None]) -> dict[str, Any]:
    """Run the study once, with a preloaded library that counts calls, and return the study's report."""
    need(why_not())
    shutil.copytree(STUDIES / "programs", directory / "programs")
    source = directory / "counted.c"
    source.write_text(LIBRARY, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", directory / "counted.so", source, "-ldl"], check=True)
    study = (STUDIES / "program-systems.yaml").read_text(encoding="utf-8")
    counted = f"{{preload: counted.so, environment: {{CALL_COUNTS: {directory / 'counts.txt'}}}}}"
    study = study.replace("schemes:\n", f"schemes:\n  counted: {counted}\n")
    study = (
        study[: study.index("  scheme: [")] + f"  scheme: [{', '.join(SCHEMES)}]\n" + study[study.index("schemes:") :]
    )
    study = study.replace("repeats: 5", "repeats: 1").replace("--layers 4", "--layers 2")
    (directory / "systems.yaml").write_text(study, encoding="utf-8")
    for command in (["submit", "systems.yaml", "--wait"], ["report", "--format", "json", "--output", "report.json"]):
        subprocess.run([sys.executable, "-m", "hpcbench", *command], cwd=directory, check=True, capture_output=True)
    content: dict[str, Any] = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def network(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the row of each scheme: its network bytes per step, and their ratio to the bytes that hpcbench counts."""
    (cell,) = report["submissions"][0]["cells"]
    return {row["scheme"]: row for row in cell["schemes"]}


@pytest.mark.long
def test_every_scheme_completes_and_shows_its_bytes(network: dict[str, dict[str, float]]) -> None:
    assert network.keys() == set(SCHEMES)
    assert all(row["network_bytes_per_step"] > 0 for row in network.values())


@pytest.mark.long
def test_counters_show_what_other_systems_send(network: dict[str, dict[str, float]]) -> None:
    baseline = network["baseline"]["network_bytes_per_step"]
    share = {name: row["network_bytes_per_step"] / baseline for name, row in network.items()}
    # Counters include retransmissions, which add some percent to the bytes of any scheme on a loaded machine.
    assert share["ddp-bf16"] == pytest.approx(0.5, rel=0.1)
    assert share["ddp-powersgd"] < 0.15
    assert share["counted"] == pytest.approx(1, rel=0.1)
    assert share["naive-int8"] == pytest.approx(0.27, rel=0.1)


@pytest.mark.long
def test_counters_agree_with_the_accounting_but_for_headers(network: dict[str, dict[str, float]]) -> None:
    assert 1 < network["naive-int8"]["network_over_accounted"] < 1.1
    assert network["ddp-bf16"]["network_over_accounted"] is None, "hpcbench has not seen its calls"


@pytest.mark.long
@pytest.mark.usefixtures("report")
def test_the_library_was_loaded_in_its_runs_only(directory: Path) -> None:
    counts = [int(line) for line in (directory / "counts.txt").read_text(encoding="utf-8").split()]
    assert counts and min(counts) > 0
    (submission,) = directory.glob("results/program-systems/*")
    for scheme in SCHEMES:
        lines = (submission / "runs" / f"r1-{scheme}" / "log.txt").read_text(encoding="utf-8").splitlines()
        (applied,) = filter(None, map(AppliedScheme.from_line, lines))
        assert (applied.preload_sha256 is not None) == (scheme == "counted")
