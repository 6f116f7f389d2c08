"""The marks of job scripts: what bash writes is what is read back."""

import json
import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.render import Job, render
from hpcbench.batch.scripts.shape import Shape
from hpcbench.batch.sites.site import Site
from hpcbench.batch.tracking import marks
from hpcbench.contract.mark import JOB_KEYS, RUN_KEYS, Mark, read_mark, write_mark
from hpcbench.contract.submission import SchedulerKind

VARIABLES = {"job": "j1", "run": "r1", "attempt": "2", "start": "2026-01-01T00:00:00Z", "began": "2026-01-01T00:00:05Z"}
VARIABLES |= {"host": '"n1"', "hosts": '"n1", "n2"', "id_json": '"77"'}


def script(kind: SchedulerKind) -> str:
    fields: dict[str, Any] = {"scheduler": {"kind": kind.value}, "node": {"cores": 4}, "launcher": {"kind": "mpich"}}
    site = Site.model_validate({"site": "bench", **fields, "checked": "never"})
    shape = Shape(1, 2, Fraction(0), 1, 1)
    job = Job("j1", ["r1"], shape, ["mpiexec"], "python", walltime=Duration(3600), queue=None, account=None)
    return render(job, site=site, study="s", root="/scratch/s")


@pytest.mark.parametrize("kind", SchedulerKind)
def test_a_rendered_script_writes_the_keys_that_are_declared(tmp_path: Path, kind: SchedulerKind) -> None:
    """Its own functions write the marks, in bash."""
    functions = re.findall(
        r"^(?:(?:now|ours)\(\) .*|(?:mark|mark_job|mark_run)\(\) \{\n(?:.*\n)*?\})$", script(kind), re.MULTILINE
    )
    assert len(functions) == 5, functions
    (tmp_path / "jobs" / "j1").mkdir(parents=True)
    (tmp_path / "runs" / "r1").mkdir(parents=True)
    set_ = "\n".join(f"{name}='{value}'" for name, value in VARIABLES.items())
    for words, ended in (("running", False), ("ended 3", True)):
        troubles = "over=1 why='/scratch: Disk quota exceeded'" if ended else "over='' why=''"
        begin = f"exec {{words}}<> <(:); next=none; {troubles}"
        code = "\n".join(["set -eu", set_, begin, *functions, f"mark_job {words}", f"mark_run {words}"])
        subprocess.run(["bash", "-c", code], cwd=tmp_path, check=True, timeout=60)
        for directory, keys in (("jobs/j1", JOB_KEYS), ("runs/r1", RUN_KEYS)):
            said = json.loads((tmp_path / directory / "status.json").read_text())
            assert tuple(said) == tuple(key for key in keys if ended or key not in ("exit", "end", "limit", "why"))
            found = read_mark(tmp_path / directory)
            assert found is not None
            for key, value in said.items():
                assert getattr(found, key) == (tuple(value) if isinstance(value, list) else value)
            write_mark(tmp_path / directory, found)
            assert list(json.loads((tmp_path / directory / "status.json").read_text()).items()) == list(said.items())


@pytest.mark.parametrize(
    ("content", "mark"),
    [
        ('{"state": "ended", "attempt": 2, "exit": 75, "end": "x", "id": "7"}', Mark("ended", 2, 75, None, "x", "7")),
        ('{"state": 3, "exit": true, "attempt": "2"}', Mark("")),
        (
            '{"state": "running", "hosts": ["n1", 2, "n3"], "exit": 1' + "0" * 30 + "}",
            Mark("running", hosts=("n1", "n3")),
        ),
        ("{}", Mark("")),
        ("[1]", Mark("")),
        ('{"state"', Mark("")),
        ("", Mark("")),
        ("[" * 100_000, Mark("")),
    ],
)
def test_a_field_that_is_not_what_it_should_be_counts_as_missing(tmp_path: Path, content: str, mark: Mark) -> None:
    assert read_mark(tmp_path) is None
    (tmp_path / "status.json").write_text(content)
    assert read_mark(tmp_path) == mark
    assert marks.read_mark(tmp_path) == (mark if mark.state else None), "of a job it is as if there were none"
