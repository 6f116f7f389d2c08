"""Tests of single logs of hpcbench and of other frameworks.

The report shows the content of a log, and compares nothing.
"""

from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import entries

from hpcbench.contract.interpose import Interposition
from hpcbench.errors import UserError
from hpcbench.present.document import Table
from hpcbench.programs.launch import Ended
from hpcbench.programs.log import Log
from hpcbench.report.build import build, resolve_tables
from hpcbench.report.main import report
from hpcbench.report.sections import read

# Modeled after the lines of the frameworks' own loggers.
LOGS = {
    "megatron.log": (
        " [2026-01-01 10:00:10] iteration       10/     100 | consumed samples:         5120 |"
        " elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 150.3 |"
        " learning rate: 1.500000E-04 | global batch size:   512 | lm loss: 9.876543E+00 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    ),
    "nano[red]gpt.log": (
        "iter 0: loss 10.9000, time 1200.00ms, mfu -100.00%\niter 10: loss 9.5000, time 240.00ms, mfu 38.12%\n"
    ),
    "titan.log": (
        "[rank0]:2025-01-01 00:00:10,000 - root - INFO - step: 10  loss: 10.2504  memory: 44.29GiB(46.62%)  tps: 7,123"
        "  tflops: 360.21  mfu: 36.42%\n"
    ),
}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for name, text in LOGS.items():
        (tmp_path / name).write_text(text)
    return sorted(tmp_path.iterdir())


def test_logs_of_other_frameworks_stand_side_by_side(paths: list[Path]) -> None:
    table_rows = entries(build(read(paths).sections), "logs")
    megatron, nano, titan = table_rows["megatron"], table_rows["nano[red]gpt"], table_rows["titan"]
    assert [row["dialect"].shown for row in (megatron, nano, titan)] == ["Megatron-LM", "nanoGPT", "torchtitan"]
    assert (megatron["step"].shown, nano["step"].shown) == ("10/100", "10")
    assert nano["mfu"].value == pytest.approx(0.3812)
    assert titan["device_bytes"].value == pytest.approx(44.29 * 2**30, rel=1e-3)
    assert (megatron["loss_train"].shown, titan["loss_train"].shown) == ("9.8765", "10.2504")
    assert megatron["tokens_per_s_per_rank"].shown == "-" and titan["tokens_per_s_per_rank"].value == 7123
    # The log contains no end event, so the run did not succeed.
    assert {row["state"].value for row in table_rows.values()} == {"incomplete"}
    assert "loss_valid" not in megatron and "scheme" not in megatron


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").touch()
    with pytest.raises(UserError, match=r"slurm-1\.out: log is empty: check that the run has started"):
        read([tmp_path / "slurm-1.out"])


def test_every_format_shows_them(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for format, tables in (("table", "all"), ("md", "all"), ("latex", "all"), ("csv", None), ("json", None)):
        assert report(paths, format, tables=tables) == 1
        assert "red" in capsys.readouterr().out


def test_further_tables_of_logs_without_a_baseline(tmp_path: Path) -> None:
    write(tmp_path / "001", [Planted("mzhybrid", 1, 0.2, 2.7)])
    sections = read([tmp_path / "001/runs/r1-mzhybrid/log.txt"]).sections
    document = build(sections, resolve_tables("traffic, runs"))
    names = [[block.name for block in chapter.blocks if isinstance(block, Table)] for chapter in document.chapters]
    assert names == [["logs", "runs"], ["traffic"]]
    assert document.chapters[1].subtitle == "baseline: none"
    row = entries(document, "logs")["r1-mzhybrid"]
    assert row["scheme"].shown == "mzhybrid" and "dialect" not in row


def test_the_log_of_a_program_shows_its_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`hpcbench run --log` counts calls, but its log contains no steps, whose traffic and evaluations are unknown."""
    bytes_sent = {"message_bytes": 6 << 20, "wire_bytes": 3 << 19, "coded_bytes": 6 << 20, "network_bytes": 0}
    encoded = {"group": "default_pg", "ranks": 2, "dimension": "DP", "call": "all-reduce", "dtype": "float32"}
    encoded |= {"codec": "int8:256", "why": "", "calls": 12, "call_bytes": 6 << 20, **bytes_sent}
    encoded |= {"encode_s": 0.01, "decode_s": 0.02, "lost_overflows": 0}
    plain = encoded | {"call": "broadcast", "codec": "", "why": "operation", **dict.fromkeys(bytes_sent, 0)}
    ranks = [{"rank": rank, "world": 2, "rows": [encoded, plain]} for rank in range(2)]
    scheme = {"name": "mine", "default": "none", "rules": [{"dimension": "DP", "codec": "int8:256"}]}
    settings = Interposition.model_validate({"scheme": {"algorithm": "encoded", **scheme}, "out": "sent"})
    Log(tmp_path / "sent.jsonl", ["train.py"], settings).close(Ended(0, ranks), None)
    assert report([tmp_path / "sent.jsonl"], tables="traffic") == 0
    out = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "mine 0.250 1.000 100.0 % 100.0 %" in out, "wire per message byte by dimension, and coded parts"
    assert "default_pg (2) DP all-reduce float32 int8:256 24 12.00 12.00 3.000 20.00 40.00" in out
    assert any(line.startswith("default_pg (2) DP broadcast float32 none: never encoded 24") for line in out)
    assert not any("sent:" in line for line in out), "no notes about the missing steps"
