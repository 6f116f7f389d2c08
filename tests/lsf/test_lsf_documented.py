"""Test of the command in docs/how-to/fakes.md, run as written."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fake_sites import STAND_IN, STUDY

from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "fakes.md"
SITES = Path(__file__).parents[2] / "sites"


def documented() -> list[str]:
    """Return the command under "Try your site file", run by this interpreter."""
    line = re.search(r"^python tests/with_fake\.py lsf .*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    at, dashes, command = line[0].partition(" -- ")
    assert dashes
    hpcbench = [sys.executable, "-m", "hpcbench"]
    program, *options = shlex.split(at)[1:]
    return [sys.executable, str(DOCS.parents[2] / program), *options, "--", *hpcbench, *shlex.split(command)[1:]]


def test_the_lines_that_the_page_changes_are_fields_of_a_site(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    text = (SITES / "lassen.yaml").read_text(encoding="utf-8")
    fields = dict(line.split(": ") for line in block[1].splitlines())
    lines = [line for line in text.splitlines() if line.partition(":")[0] not in fields]
    (tmp_path / "mine.yaml").write_text("\n".join([*lines, *block[1].splitlines()]), encoding="utf-8")
    site, _ = load_site(str(tmp_path / "mine.yaml"))
    assert (site.device, site.oversubscribe, site.threads) == ("cpu", True, 1)


@pytest.mark.long
@pytest.mark.parametrize("account", ["bank", None])
def test_a_site_file_is_tried_as_documented(tmp_path: Path, account: str | None) -> None:
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    stand_in.chmod(0o755)
    (tmp_path / "acts.json").write_text("{}", encoding="ascii")
    text = (SITES / "lassen.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        text.replace("python: python3", f"python: {stand_in}").replace("site: lassen", "site: mine"), encoding="utf-8"
    )
    study = {**STUDY, "account": account} if account else {k: v for k, v in STUDY.items() if k != "account"}
    (tmp_path / "study.yaml").write_text(json.dumps(study), encoding="utf-8")
    done = subprocess.run(
        documented(), cwd=tmp_path, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    if account is None:
        assert done.returncode == 2
        assert "wants an account: option -G. Job not submitted.: set account: in the study" in done.stderr
        assert not (tmp_path / "results").exists()
        return
    assert done.returncode == 0, done.stderr
    assert "results/fake/001" in done.stdout
    tracked = track(tmp_path / "results" / "fake" / "001")  # the fake has ended; the states come from the status files
    assert [status.state for status in tracked.runs.values()] == [State.COMPLETED]
    assert tracked.silent is None
