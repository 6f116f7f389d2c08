"""Tests of the program that runs a command with a fake scheduler first on PATH."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import with_fake
from fakes.hosts import why_not

SITE = """\
site: mine
scheduler: {kind: lsf, account_option: -G, max_array: 3, max_submitted: 4}
queues:
  small: {max_nodes: 1, max_walltime: 30m, max_submitted: 2}
  binned: {bins: [{max_nodes: 2, max_walltime: 10m}, {max_nodes: 3, max_walltime: 20m}]}
node: {cores: 8, gpus: 2}
launcher: {kind: jsrun}
python: python3
checked: never
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Call the command as users do."""
    line = [sys.executable, with_fake.__file__, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_a_site_is_tried_and_the_command_waits_for_its_jobs(tmp_path: Path) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text(SITE, encoding="utf-8")
    script = tmp_path / "job.sh"
    script.write_text(
        "#BSUB -W 0:30\n#BSUB -nnodes 1\nsleep 0.5; jsrun -n 2 -r 2 -a 1 -c 4 -g 1 sh -c 'echo $PMIX_RANK'\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    done = run(
        "lsf", "--site", str(site), "--minute", "1", "--", "sh", "-c", f"bsub -G x -N -o {out} < {script}; exit 3"
    )
    assert done.returncode == 3
    assert done.stdout == "Job <1> is submitted to default queue <small>.\n"
    assert "1 job still to end" in done.stderr
    assert sorted(out.read_text(encoding="utf-8").split()) == ["0", "1"]


def test_ranks_of_two_nodes_have_two_names(tmp_path: Path, need: Callable[[str | None], None]) -> None:
    """A run fails if its ranks are on more or fewer nodes than requested."""
    need(why_not())
    script, out = tmp_path / "job.sh", tmp_path / "out"
    script.write_text("#BSUB -W 5\n#BSUB -nnodes 2\njsrun -n 4 -r 2 -a 1 -c 4 uname -n\n", encoding="utf-8")
    done = run("lsf", "--", "sh", "-c", f"bsub -N -o {out} < {script}")
    assert done.returncode == 0, done.stderr
    assert sorted(out.read_text(encoding="utf-8").split()) == ["node1", "node1", "node2", "node2"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-G x -nnodes 2", "Too many processors requested. Job not submitted."),
        ("-G x -W 0:31", "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted."),
        ("-G x -q binned -nnodes 2 -W 0:11", "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted."),
        ("-G x -q binned -nnodes 4 -W 0:1", "Too many processors requested. Job not submitted."),
        ("-W 0:3", "This site wants an account: option -G. Job not submitted."),
        ("-G x -J 'a[1-4]'", "Job array index too large. Job not submitted."),
        ("-G x -J 'a[1-3]'", "The destination queue has reached its job limit. Job not submitted."),
        ("-G x -q binned -J 'a[1-3]'", None),
    ],
)
def test_limits_of_the_site_apply(tmp_path: Path, options: str, text: str | None) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text(SITE, encoding="utf-8")
    done = run("lsf", "--site", str(site), "--", "sh", "-c", f"echo true | bsub {options}")
    if text is None:
        assert done.returncode == 0
        assert "Job <1> is submitted" in done.stdout
    else:
        assert done.returncode == 255
        assert done.stderr.strip() == text


def test_a_site_where_bsub_reads_the_file(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#BSUB -P x\n#BSUB -q debug\ntrue\n", encoding="utf-8")
    script.chmod(0o755)
    done = run("lsf", "--site", "summit", "--", "bsub", str(script))
    assert done.stdout == "Job <1> is submitted to queue <debug>.\n"


def test_a_site_of_flux(tmp_path: Path) -> None:
    body = "printf '#!/bin/sh\ntrue\n' | flux batch -N1"
    done = run("flux", "--site", "tuolumne", "--", "sh", "-c", f"{body}; {body} --bank=x -q pdebug")
    assert done.stderr.startswith("flux-batch: ERROR: [Errno 22] a bank is required by this site")
    assert done.returncode == 0


def test_flux_too(tmp_path: Path) -> None:
    done = run("flux", "--nodes", "3", "--", "flux", "resource", "list", "-no", "{nnodes}")
    assert (done.returncode, done.stdout) == (0, "3\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["flux", "--site", "lassen", "--", "true"], "site lassen: its scheduler is lsf: give lsf, not flux"),
        (["lsf", "--flavour", "sge", "--", "true"], "flavour 'sge' of LSF: known are csm, lsf, old, lsf-like"),
        (["lsf", "--", "/no/such/program"], "/no/such/program: No such file or directory"),
        (["lsf", "--site", "nowhere", "--", "true"], "unknown site 'nowhere'"),
    ],
)
def test_wrong_input(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert with_fake.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        with_fake.main(["lsf"])
    assert exit.value.code == 2
    assert "give a command after --" in capsys.readouterr().err
