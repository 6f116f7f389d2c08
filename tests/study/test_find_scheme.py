"""Tests of scheme lookup in the study, the site and the presets, and of messages for missing or ambiguous names."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.process_changes import format_assignments
from hpcbench.contract.scheme import Scheme
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.find_scheme import Offer
from hpcbench.study.load import load_study
from hpcbench.study.size import Capacity

LIBRARY: dict[str, Any] = {"algorithm": "native", "environment": {"SWITCH": "on"}}


def run_of(directory: Path, scheme: str, *, study_schemes: list[str], site: list[str]) -> ExpandedRun:
    """Return the run of `scheme`. The scheme's variable WHOSE contains the scheme's owner: study or site."""

    def schemes(names: list[str], whose: str) -> dict[str, Any]:
        return {name: {"algorithm": "native", "environment": {"WHOSE": whose}} for name in names}

    study = {
        "study": "s",
        "model": "gpt-tiny",
        "train": {"steps": 20, "global_batch": 64},
        "schemes": schemes(study_schemes, "study"),
        "matrix": {"scheme": [scheme]},
        "baseline": {"scheme": scheme},
    }
    path = directory / "s.yaml"
    path.write_text(json.dumps(study, indent=0), encoding="utf-8")
    added = {name: Scheme.model_validate(fields) for name, fields in schemes(site, "site").items()}
    offer = Offer("here", added, lambda name: ["there", "yonder"] if name == "library" else [])
    return expand(load_study(path), Capacity("here", None, 2), offer)[0]


@pytest.mark.parametrize(
    ("scheme", "study_schemes", "site", "whose", "message"),
    [
        ("library", ["library"], [], "study", None),
        ("library", [], ["library"], "site", None),
        ("identity", [], [], None, None),
        (
            "library",
            ["library"],
            ["library"],
            "study",
            "scheme library is defined by the study, which overrides site here",
        ),
        (
            "naive-zfp8",
            ["naive-zfp8"],
            [],
            "study",
            "scheme naive-zfp8 is defined by the study, which overrides a preset",
        ),
        (
            "naive-zfp8",
            [],
            ["naive-zfp8"],
            "site",
            "scheme naive-zfp8 is defined by site here, which overrides a preset",
        ),
        (
            "baseline",
            ["baseline"],
            ["baseline"],
            "study",
            "scheme baseline is defined by the study, which overrides site here and a preset",
        ),
    ],
)
def test_the_study_overrides_the_site_and_the_site_the_presets(
    tmp_path: Path, scheme: str, study_schemes: list[str], site: list[str], whose: str | None, message: str | None
) -> None:
    run = run_of(tmp_path, scheme, study_schemes=study_schemes, site=site)
    assert run.scheme.environment.get("WHOSE") == whose
    assert run.clash == message


def test_a_name_that_this_site_lacks_is_refused_with_the_sites_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run_of(tmp_path, "library", study_schemes=[], site=["other"])
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/s.yaml:") and "unknown scheme 'library'" in message and "\n" not in message
    assert message.split(":")[1] == str(line_of(tmp_path / "s.yaml", '"library"'))
    assert message.endswith("; site here adds other; library exists on there, yonder")
    with pytest.raises(UserError, match=r"; site here adds none$"):
        run_of(tmp_path, "nonsense", study_schemes=[], site=[])


def line_of(path: Path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if text in line)


def test_variables_are_shown_as_a_shell_takes_them() -> None:
    assert format_assignments({"A": "1", "B": "it's"}) == """A=1 B='it'"'"'s'"""
