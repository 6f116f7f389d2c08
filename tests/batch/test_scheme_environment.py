"""Tests of a scheme's variables: they reach the ranks of its runs unchanged, and reach no other process."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import Fake
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from test_render import OFFER, jobs_of

from hpcbench.batch.scripts.launchers import export_words
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site, site_names, sites_with
from hpcbench.batch.sites.show_site import show_site
from hpcbench.batch.sites.site import Site
from hpcbench.batch.submit import Options, submit
from hpcbench.contract.scheme import Scheme
from hpcbench.files import read_json
from hpcbench.resources import data_dir
from hpcbench.study.yaml12 import read

LIBRARY: dict[str, Any] = {"algorithm": "native", "environment": {"MPIR_CVAR_X": "1 2", "_Y": "$HOME"}}


def allowed(name: str) -> bool:
    try:
        Scheme.model_validate({"algorithm": "native", "environment": {name: ""}})
    except ValidationError:
        return False
    return True


# Some of these names are used by the script itself, or set by bash.
NAMES = (
    st.sampled_from(["RUN", "JOB", "ROOT", "LAUNCH", "HOST", "IFS", "UID", "HOME", "MPIR_CVAR_X"])
) | st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,8}\Z").filter(allowed)
VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\x7f"]), max_size=40
)
DUMP = "import sys; open(sys.argv[-1] + '.seen', 'wb').write(open('/proc/self/environ', 'rb').read())"
OF_BASH = {"_", "PWD", "OLDPWD", "SHLVL"}
"""Variables that bash exports to its child processes."""


def seen(path: Path) -> dict[str, str]:
    variables = path.read_bytes().decode("utf-8").split("\0")
    return dict(word.split("=", 1) for word in variables if word)


@settings(max_examples=25, deadline=None)
@given(environment=st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_whatever_a_variable_holds_reaches_the_runs_of_its_scheme_alone(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> None:
    tmp_path = tmp_path_factory.mktemp("submission")  # one submission each, because completed runs do not run again
    local = Site.model_validate({**OFFER, "scheduler": {"kind": "local"}, "launcher": {"kind": "mpich"}})
    job = replace(
        jobs_of("local", local)[0],
        runs=["before", "own", "after"],
        launch=[sys.executable, "-I", "-S", "-c", DUMP],
        python="python of the ranks",
        environments={"own": environment},
        clear=sorted(environment),
    )
    for run in job.runs:
        (tmp_path / "runs" / run).mkdir(parents=True, exist_ok=True)
    (tmp_path / "jobs" / job.id).mkdir(parents=True, exist_ok=True)
    script = tmp_path / "job.sh"
    script.write_text(render(job, site=local, study="s", root=str(tmp_path)), encoding="utf-8")
    outer = {**dict.fromkeys(environment, "of the submitter's shell"), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", str(script)], env=outer, cwd="/", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    environments = {run: seen(tmp_path / "runs" / run / "run.json.seen") for run in job.runs}
    assert {name: environments["own"].get(name) for name in environment} == environment
    for other in ("before", "after"):
        assert not set(environment) - OF_BASH - {"UID"} & set(environments[other])
        assert "of the submitter's shell" not in {environments[other].get(name) for name in set(environment) - {"UID"}}


def test_open_mpi_and_jsrun_export_variables_by_an_option() -> None:
    site = Site.model_validate(OFFER)
    assert export_words(["A", "B"], site) == ["-x", "A", "-x", "B"]
    jsrun = Site.model_validate({**OFFER, "launcher": {"kind": "jsrun"}})
    assert export_words(["A", "B"], jsrun) == ["-E", "A", "-E", "B"]
    for kind in ("mpich", "srun", "lrun", "ibrun"):
        other = Site.model_validate({**OFFER, "launcher": {"kind": kind}})
        assert export_words(["A", "B"], other) == []


def test_a_study_compares_with_a_scheme_of_the_site(fake: Fake) -> None:
    fake.write_site(schemes={"library": LIBRARY})
    fake.write_study(matrix={"scheme": ["baseline", "mzhybrid", "library"]})
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True, out=fake.directory / "out"))
    assert "runs of library are started with environment MPIR_CVAR_X='1 2' _Y='$HOME'" in submission.notes
    script = submission.root / "jobs" / "j0001-r1" / "job.sh"
    outer = {**os.environ, "MPIR_CVAR_X": "of the submitter's shell"}
    done = subprocess.run(["bash", str(script)], env=outer, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    calls = {call["run"]: call["env"] for call in fake.calls if "env" in call}
    settings = {run: {name: env[name] for name in LIBRARY["environment"] if name in env} for run, env in calls.items()}
    assert settings == {"r1-baseline": {}, "r1-mzhybrid": {}, "r1-library": LIBRARY["environment"]}
    data = read_json(submission.root / "runs" / "r1-library" / "run.json")
    assert data is not None and data["scheme"] == {
        "name": "library",
        "default": "none",
        "rules": [],
        "arguments": "",
        "preload": None,
        "setup": [],
        "optimizer": None,
        **LIBRARY,
    }


def test_a_clash_of_names_is_noted(fake: Fake) -> None:
    fake.write_site(schemes={"mzhybrid": LIBRARY})
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True, out=fake.directory / "out"))
    assert "scheme mzhybrid is defined by site fake, which overrides a preset" in submission.notes


def test_a_variable_of_the_site_keeps_its_value_in_other_runs(fake: Fake) -> None:
    fake.write_site(schemes={"library": LIBRARY}, environment={"MPIR_CVAR_X": "the site's"})
    fake.write_study(matrix={"scheme": ["baseline", "library"]})
    root = submit(fake.study, Options(site=str(fake.site), dry_run=True, out=fake.directory / "out")).root
    subprocess.run(["bash", str(root / "jobs" / "j0001-r1" / "job.sh")], check=True)
    calls = {call["run"]: call["env"]["MPIR_CVAR_X"] for call in fake.calls if "env" in call}
    assert calls == {"r1-baseline": "the site's", "r1-library": "1 2"}


def test_a_site_shows_the_schemes_that_it_adds(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.write_site(schemes={"library": LIBRARY, "naive-zfp8": {"algorithm": "native"}})
    show_site(str(fake.site))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("schemes"))
    assert lines[first].split(maxsplit=1)[1] == "library: native, with environment MPIR_CVAR_X='1 2' _Y='$HOME'"
    assert lines[first + 1] == "naive-zfp8: native, instead of the preset"


def test_the_example_in_longhorn_is_right(tmp_path: Path) -> None:
    text = (data_dir("sites") / "longhorn.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    begin = lines.index("# schemes:")
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith(("# schemes", "#  ")))
    lines[begin:end] = [line[2:] for line in lines[begin:end]]
    path = tmp_path / "longhorn.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    site = Site.model_validate(read(path).data)
    assert list(site.schemes) == ["mvapich-zfp16", "mvapich-mpc"]
    assert all(scheme.algorithm == "native" and scheme.environment for scheme in site.schemes.values())
    assert load_site("longhorn")[0].schemes == {}


def test_sites_that_add_a_scheme_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {"library": Scheme.model_validate(LIBRARY)}
    first, *_ = site_names()

    def load(name: str, where: str = "") -> tuple[Site, None]:
        site, _ = load_site(name)
        return site.model_copy(update={"schemes": added if name == first else {}}), None

    monkeypatch.setattr("hpcbench.batch.sites.load_site.load_site", load)
    assert (sites_with("library"), sites_with("other")) == ([first], [])
