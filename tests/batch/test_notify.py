"""Tests of mail at the end of a job: the schedulers' options, and one-line error messages."""

from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

STUDY = """\
study: s
model: {layers: 2, hidden: 64, heads: 4}
train: {steps: 20, global_batch: 64, micro_batch: 1}
matrix: {scheme: [baseline]}
"""


def write_script(directory: Path, where: str, address: str, **scheduler: Any) -> str:
    """Return the first job script of a study with `notify`."""
    (directory / "s.yaml").write_text(f"{STUDY}notify: {address}\n", encoding="utf-8")
    loaded, site = load_study(directory / "s.yaml", []), load_site(where)[0]
    site = Site.model_validate(site.model_dump() | {"scheduler": site.scheduler.model_dump() | scheduler})
    jobs, _ = plan(expand(loaded, site.capacity, offer(site)), loaded, site, dry_run=True)
    return render(jobs[0], site=site, study="s", root="/r")


def refused(directory: Path, *arguments: Any, **scheduler: Any) -> str:
    with pytest.raises((UserError, ValueError)) as caught:
        write_script(directory, *arguments, **scheduler)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("where", "lines"),
    [
        ("vista", ["#SBATCH --mail-user=me.too+x@site.example", "#SBATCH --mail-type=END,FAIL"]),
        ("lassen", ["#BSUB -u me.too+x@site.example", "#BSUB -N"]),
    ],
)
def test_options_of_the_scheduler(tmp_path: Path, where: str, lines: list[str]) -> None:
    script = write_script(tmp_path, where, "me.too+x@site.example").splitlines()
    assert [line for line in script if line in lines] == lines
    silent = write_script(tmp_path, where, "null").splitlines()
    assert [line for line in script if line not in silent] == lines


@pytest.mark.parametrize(
    ("where", "why"),
    [("tuolumne", "flux sends no mail"), ("local", "jobs on the local machine send no mail")],
)
def test_schedulers_without_mail_refuse_it(tmp_path: Path, where: str, why: str) -> None:
    assert refused(tmp_path, where, "me").endswith(f"s.yaml:5: notify: {why}: remove it")


@pytest.mark.parametrize(
    "address", ["a b@c", "a,b", "$(id)@x", "me;id", "-f", "a@", "@a", "a@b@c", "me@x''y", "a`b`", "a\tb", ""]
)
def test_an_address_that_a_shell_could_read_is_refused_with_its_line(tmp_path: Path, address: str) -> None:
    message = refused(tmp_path, "vista", f"'{address}'")
    assert "s.yaml:5: notify: " in message and "is not a mail address or user name" in message


def test_options_that_the_site_refuses_or_sets_itself(tmp_path: Path) -> None:
    message = refused(tmp_path, "vista", "me", refuses=["--mail-user"])
    assert message.endswith("s.yaml:5: notify: vista refuses the option --mail-user (scheduler.refuses): remove it")
    message = refused(tmp_path, "vista", "me", directives={"--mail-user": "other"})
    assert message == "scheduler.directives: --mail-user is set by hpcbench: remove it"
