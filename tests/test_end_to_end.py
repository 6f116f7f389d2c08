"""Tests on this machine with real ranks, from submission to report, and of the states of failed runs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from start_ranks import RankServer

from hpcbench.resources import data_dir

STUDY = """\
study: whole
model: {name: mini, layers: 2, hidden: 32, heads: 2, vocab: 256, positions: rotary, parallel_residual: true}
data: {source: stdlib}
train: {steps: %d, warmup_steps: 2, global_batch: 4, micro_batch: 1, seq_len: 32, precision: fp32, zero: 1, lr: 3e-3}
layout: {dp: 2, tp: 1, pp: 2}
matrix: {scheme: [%s]}
repeats: %d
pairing: allocation
"""


def hpcbench(*arguments, cwd):
    return subprocess.run(
        [str(Path(sys.executable).with_name("hpcbench")), *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )


def submit(folder: Path, schemes: str, *options: str, site: str = "local", steps: int = 6, repeats: int = 1):
    (folder / "study.yaml").write_text(STUDY % (steps, schemes, repeats))
    return hpcbench("submit", "study.yaml", "--site", site, "--out", "out", *options, cwd=folder)


def quick_site(folder: Path, server: RankServer) -> str:
    """Write a site file for this machine, whose ranks have imported all modules before they start."""
    site = (data_dir("sites") / "local.yaml").read_text()
    assert "python: auto" in site
    path = folder / "quick.yaml"
    python = json.dumps(str(server.python(folder)))
    path.write_text(site.replace("python: auto", f"python: {python}").replace("site: local", "site: quick"))
    return str(path)


def report(folder: Path):
    done = hpcbench("report", "out", "--format", "json", cwd=folder)
    return done.returncode, json.loads(done.stdout)


def lines(folder: Path, run: str):
    return (folder / "out/001/runs" / run / "log.txt").read_text().splitlines()


def events(folder: Path, run: str):
    return [json.loads(line) for line in lines(folder, run) if line.startswith("{")]


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.2)
    return value


@pytest.fixture(scope="module")
def completed(tmp_path_factory, job_ranks):
    folder = tmp_path_factory.mktemp("completed $(touch pwned) 'quoted'")
    done = submit(folder, "baseline, naive-mpc, naive-zfp4", "--wait", site=quick_site(folder, job_ranks), repeats=2)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_every_run_completes_and_the_report_has_a_verdict_for_each_scheme(completed):
    code, answer = report(completed)
    assert code == 0
    text = hpcbench("report", "out", cwd=completed).stdout
    for scheme in ("baseline", "naive-mpc", "naive-zfp4"):
        assert scheme in json.dumps(answer)
        assert scheme in text
    assert "2 repeats" in " ".join(text.split())
    assert not list(completed.rglob("pwned")) and not (completed.parent / "pwned").exists()


def test_lossless_scheme_has_the_losses_of_the_baseline_and_a_lossy_one_has_not(completed):
    """The sum of two replicas does not depend on their order, so the losses are bitwise identical."""

    def losses(run):
        return [line.split(" | ")[1] for line in lines(completed, run) if line.startswith("step")]

    assert len(losses("r1-baseline")) == 6
    assert losses("r1-naive-mpc") == losses("r1-baseline")
    assert losses("r1-naive-zfp4") != losses("r1-baseline")
    assert losses("r2-baseline") != losses("r1-baseline"), "repeats must differ in their seed"


def test_all_schemes_send_the_same_messages_and_encoded_ones_are_smaller(completed):
    def traffic(run):
        (event,) = [event for event in events(completed, run) if event["event"] == "traffic"]
        return {(c["dimension"], c["phase"], c["kind"]): c for c in event["channels"]}

    base = traffic("r1-baseline")
    assert {key[0] for key in base} == {"DP", "ZERO", "PP", "EXACT"}
    for run in ("r1-naive-mpc", "r1-naive-zfp4"):
        channels = traffic(run)
        assert {k: c["message_bytes"] for k, c in channels.items()} == {k: c["message_bytes"] for k, c in base.items()}
    for key, channel in traffic("r1-naive-zfp4").items():
        if key[0] == "EXACT":
            assert channel["codec"] == "none" and channel["wire_bytes"] == channel["message_bytes"]
        else:
            assert channel["codec"] == "zfp:4"
            assert channel["wire_bytes"] < channel["message_bytes"] / 7
            assert min(channel["encode_s"], channel["decode_s"], channel["transfer_s"]) > 0


def test_log_contains_the_host_of_each_rank(completed):
    start, environment, _, configuration, *_ = events(completed, "r1-baseline")
    assert start["scheme"] == "baseline"
    assert [rank["rank"] for rank in environment["world"]] == [0, 1, 2, 3]
    assert len({rank["pid"] for rank in environment["world"]}) == 4
    assert configuration["run"]["layout"] == {
        "dp": 2,
        "tp": 1,
        "tensor": "1d",
        "depth": 1,
        "cp": 1,
        "context": "ring",
        "pp": 2,
        "ep": 1,
        "chunks": 1,
        "stages": [],
    }
    assert configuration["valid_loss_unigram"] < configuration["valid_loss_uniform"]


def test_cut_log_reports_what_it_holds(completed, tmp_path):
    log = (completed / "out/001/runs/r1-baseline/log.txt").read_bytes()
    cut = log[: log.index(b"step 4/6") + 30]
    (tmp_path / "cut.txt").write_bytes(cut)
    done = hpcbench("report", "cut.txt", "--format", "json", cwd=tmp_path)
    assert "incomplete" in (done.stdout + done.stderr)
    assert done.returncode == 1


def test_killed_rank_ends_its_run_and_no_other(tmp_path):
    submitted = submit(tmp_path, "baseline, identity", "--set", "train.steps=100000", "--only", "scheme=baseline")
    assert submitted.returncode == 0, submitted.stderr
    log = tmp_path / "out/001/runs/r1-baseline/log.txt"
    wait_for(lambda: log.exists() and "\nstep" in log.read_text())
    pids = [rank["pid"] for rank in events(tmp_path, "r1-baseline")[1]["world"]]
    os.kill(pids[2], signal.SIGKILL)
    marker = tmp_path / "out/001/runs/r1-baseline/status.json"
    wait_for(lambda: json.loads(marker.read_text())["state"] == "ended")
    assert json.loads(marker.read_text())["exit"] != 0
    for pid in pids:
        wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    status = wait_for(lambda: (s := hpcbench("status", "out", cwd=tmp_path)).returncode == 1 and s)
    assert "failed" in status.stdout and "signal 9" in status.stdout, status.stdout
    answer = hpcbench("report", "out", cwd=tmp_path)
    assert answer.returncode == 1
    assert "failed" in answer.stdout and "signal 9" in answer.stdout, answer.stdout


def test_run_after_a_failed_one_still_runs_and_a_nan_is_called_by_its_name(tmp_path, job_ranks):
    """With fp32 and a huge learning rate, the run diverges at step 2.

    The table names the step, and the exit status is 1.
    """
    site = quick_site(tmp_path, job_ranks)
    done = submit(tmp_path, "baseline, identity", "--wait", "--set", "train.lr=1e30", site=site)
    assert done.returncode == 1
    for run in ("r1-baseline", "r1-identity"):
        end = events(tmp_path, run)[-1]
        assert (end["state"], end["reason"]) == ("nan", "loss is nan at step 2")
    answer = hpcbench("report", "out", cwd=tmp_path)
    assert answer.returncode == 1
    assert "NaN at step 2" in answer.stdout or "nan at step 2" in answer.stdout, answer.stdout


def test_world_of_the_wrong_size_is_refused(completed, tmp_path):
    """The launcher of another MPI library starts N worlds of one rank each."""
    run = completed / "out/001/runs/r1-baseline/run.json"
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench.train", str(run)], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "world of 1 ranks, but the run needs 4" in done.stderr
    assert "Traceback" not in done.stderr
