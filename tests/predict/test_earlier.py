"""Tests of calibration with earlier runs: synthetic runs on a machine whose speed differs from its tables."""

import json
import re
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.errors import UserError
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.command import predict_study
from hpcbench.predict.earlier_runs import find_runs
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file

STUDY = """\
study: demo
site: local
model: gpt-tiny
train: {{steps: 12, warmup_steps: 2, global_batch: 8, micro_batch: 1, seq_len: {seq_len}, zero: 1}}
layout: {{dp: 2}}
ranks_per_node: 2
matrix: {{scheme: [baseline, naive-zfp8]}}
"""


def study(directory: Path, seq_len: int = 512) -> Path:
    path = directory / f"demo-{seq_len}.yaml"
    path.write_text(STUDY.format(seq_len=seq_len))
    return path


def plant(root: Path, path: Path, factor: float) -> Path:
    """Return runs that computed for `factor` times the predicted time and waited for a fifth of each step."""
    result, _, _ = predict_study(path, site=None, measured=None, ranks=(), sets=())
    parts = result[0].time.parts
    compute = factor * sum(parts[name] for name in ("forward", "backward", "recompute", "optimizer"))
    site, _ = load_site("local")
    loaded = load_study(path)
    built = {
        run.scheme_name: run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=path.parent)
        for run in expand(loaded, site.capacity, offer(site))
        if run.repeat == 1
    }
    runs = [Planted(name, 1, compute / 0.8, 2.7, hosts={"n1": 1.0}, coded=1.0, wire=0.3) for name in built]
    write(root, runs)
    for run in runs:
        (root / "runs" / run.id / "run.json").write_text(json.dumps(built[run.scheme]))
    return root


def predicted(path: Path, measured: Path | None) -> tuple[dict[str, float], dict[str, object]]:
    result, about, _ = predict_study(path, site=None, measured=measured, ranks=(), sets=())
    if measured:
        assert {item.time.seconds.basis for item in result} <= {InputBasis.HERE, InputBasis.ASSUMED}
    return {item.scheme: item.time.parts["forward"] + item.time.parts["backward"] for item in result}, about


def test_a_slower_machine_is_predicted_slower_in_other_runs_too(tmp_path: Path) -> None:
    plant(tmp_path / "results" / "demo" / "001", study(tmp_path), 3.0)
    other = study(tmp_path, seq_len=256)
    before, _ = predicted(other, None)
    after, about = predicted(other, tmp_path / "results")
    for scheme, seconds in before.items():
        assert after[scheme] == pytest.approx(3 * seconds, rel=1e-6)
    learned = about["learned"]
    assert isinstance(learned, list)
    assert learned[0].startswith("2 earlier runs: computation took 3.00 times the time from the tables")
    assert "with a calibration from the other runs: mean" in learned[2]


def test_codecs_tell_their_speed_themselves(tmp_path: Path) -> None:
    path = study(tmp_path)
    root = plant(tmp_path / "001", path, 1.0)
    result, _, _ = predict_study(path, site=None, measured=root, ranks=(), sets=())
    plain, coded = (item.time.channels["DP", "BACKWARD", "GRAD"].wire_bytes for item in result)
    assert coded == pytest.approx(0.3 * plain, rel=0.01)


def test_the_step_time_of_an_earlier_run_is_the_mean_of_its_counted_steps(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", study(tmp_path), 3.0)
    for log in root.glob("runs/*/log.txt"):
        log.write_text(re.sub(r"(step +(?:3|6|9|12)/.* time )([0-9.]+)", _stalled, log.read_text()))
    runs = find_runs(tmp_path, "local")
    assert len(runs) == 2
    for run in runs:
        seconds = run.log.steps.column("seconds", first=3)
        assert len(seconds) == 10 and max(seconds) > 5 * min(seconds)
        assert run.seconds == pytest.approx(sum(seconds) / 10)


def _stalled(result: re.Match[str]) -> str:
    return f"{result[1]}{8 * float(result[2]):.6f}"


def test_runs_that_did_not_end_or_ran_elsewhere_teach_nothing(tmp_path: Path) -> None:
    path = study(tmp_path)
    root = plant(tmp_path / "results", path, 3.0)
    for log in root.glob("runs/*/log.txt"):
        lines = log.read_text().splitlines()
        log.write_text("\n".join(line for line in lines if '"event": "end"' not in line) + "\n")
    with pytest.raises(UserError, match=r"contains neither gemm\.json nor network\.json, nor completed runs on local"):
        predicted(path, tmp_path / "results")
