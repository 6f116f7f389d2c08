"""Tests of logs whose schemes the user names: ``baseline=a.log zfp=b.log``."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.errors import UserError
from hpcbench.report.answer import answer
from hpcbench.report.compare import Cell
from hpcbench.report.main import report
from hpcbench.report.sections import read
from hpcbench.report.verdicts import NO_LOSS

STEPS = 20


def megatron(path: Path, milliseconds: float, loss: float, *, batch: int = 64, evaluated: bool = True) -> Path:
    """Return a finished log of Megatron-LM with constant step times."""
    lines = [
        f" [2026-08-20 08:00:{k:02}] iteration {k:8}/{STEPS:8} | consumed samples: {batch * k:12} |"
        f" elapsed time per iteration (ms): {milliseconds:.1f} | learning rate: 3.000000E-05 |"
        f" global batch size: {batch:5} | lm loss: {11 - (11 - loss) * k / STEPS:.6E} | loss scale: 1.0 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for k in range(1, STEPS + 1)
    ]
    if evaluated:
        lines.append(
            f" validation loss at iteration {STEPS} on validation set | lm loss value: {loss:.6E} |"
            f" lm loss PPL: 1.000000E+03 |\n"
        )
    path.write_text("".join(lines))
    return path


def named(**logs: list[Path]) -> list[Path]:
    return [Path(f"{name}={path}") for name, paths in logs.items() for path in paths]


def cell(paths: list[Path]) -> Cell:
    ((_, (compared_cell,)),) = read(paths).sections
    return compared_cell


@pytest.fixture
def base(tmp_path: Path) -> list[Path]:
    return [megatron(tmp_path / f"base{k}.log", 1000 + 10 * k, 8 + 0.1 * k) for k in (1, 2, 3)]


def test_logs_of_a_name_are_repeats_in_the_order_given(tmp_path: Path, base: list[Path]) -> None:
    zfp = [megatron(tmp_path / f"zfp{k}.log", (1000 + 10 * k) / 1.25, 8.001 + 0.1 * k) for k in (1, 2, 3)]
    compared_cell = cell(named(baseline=base, zfp=zfp))
    row = compared_cell.row("zfp")
    assert compared_cell.baseline == "baseline" and row is not None and row.speed is not None and row.loss is not None
    # Only with the correct partners are all ratios and all differences the same.
    assert row.speed.pairs == 3 and row.speed.estimate == pytest.approx(1.25, rel=1e-3)
    assert row.speed.low == pytest.approx(1.25, rel=1e-3)
    assert row.loss.estimate == pytest.approx(0.001) and row.loss.high == pytest.approx(0.001, rel=1e-6)
    assert row.verdict == "faster, loss no worse"
    swapped = cell(named(baseline=base, zfp=zfp[::-1])).row("zfp")
    assert swapped is not None and swapped.speed is not None and swapped.speed.low is not None
    assert swapped.speed.low < 1.22


def test_the_answer_says_that_pairing_is_by_order(
    tmp_path: Path, base: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = named(plain=base[:2], zfp=[megatron(tmp_path / "zfp.log", 800, 8.1)])
    answer_text = " ".join(answer(cell(paths), "unknown site"))
    assert "Schemes are compared over pairs of logs (number of pairs: 1) in the order given" in answer_text
    assert (
        "hpcbench does not check that the logs of a pair have the same model, batch, ranks, seed and nodes"
        in answer_text
    )
    assert "equal seed and allocation" not in answer_text and "unknown site" not in answer_text
    assert report(paths) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith(f"{tmp_path.name} on unknown site      baseline: plain")
    report(paths, "json")
    (chapter,) = json.loads(capsys.readouterr().out)["submissions"][0]["cells"]
    assert [(run["run"], run["scheme"]) for run in chapter["runs"]] == [
        ("r1-plain", "plain"),
        ("r2-plain", "plain"),
        ("r1-zfp", "zfp"),
    ]


def test_what_is_faster_without_a_validation_loss_is_said_to_be_so(tmp_path: Path, base: list[Path]) -> None:
    blind = [megatron(tmp_path / f"z{k}.log", 800 + k, 8.1, evaluated=False) for k in (1, 2, 3)]
    compared_cell = cell(named(baseline=base, zfp=blind))
    row = compared_cell.row("zfp")
    assert row is not None and row.outcome == NO_LOSS
    answer_lines = answer(compared_cell, "unknown site")
    assert (
        answer_lines[0]
        == "Inconclusive. By these logs (unknown model, 20 steps) it is unclear whether compression pays."
    )
    assert answer_lines[1].startswith("Faster, but without a validation loss to compare: zfp (1.2")
    assert not any("too few repeats" in sentence or "does not pay" in sentence for sentence in answer_lines)


def test_speeds_are_of_what_both_logs_give(tmp_path: Path) -> None:
    line = "step: {}  loss: 8.25  memory: 44.29GiB(46.62%)  tps: {}  tflops: 360.21  mfu: 36.42%\n"
    for name, rate in (("a", "5,000"), ("b", "6,000")):
        steps = "".join("[titan] 2026-01-01 00:00:10,000 - root - INFO - " + line.format(k, rate) for k in (1, 2, 3))
        (tmp_path / name).write_text(f"{steps}[titan] 2026-01-01 00:01:10,000 - root - INFO - Training completed\n")
    row = cell(named(a=[tmp_path / "a"], b=[tmp_path / "b"])).row("b")
    assert row is not None and row.samples_per_s is None
    assert row.speed is not None and row.speed.estimate == pytest.approx(1.2)


def test_samples_per_second_need_one_batch_throughout(tmp_path: Path) -> None:
    steady = megatron(tmp_path / "steady.log", 500, 8.0, batch=64)
    ramped = tmp_path / "ramped.log"
    ramped.write_text(steady.read_text().replace("global batch size:    64", "global batch size:    32", 5))
    rates = [cell([path]).rows[0].samples_per_s for path in (steady, ramped)]
    assert rates == [pytest.approx(128), None]


def test_our_own_logs_take_the_names_given(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7), Planted("baseline", 2, 0.3, 2.7)])
    logs = [root / "runs" / f"r{k}-baseline" / "log.txt" for k in (1, 2)]
    compared_cell = cell(named(plain=logs[:1], library=logs[1:]))
    row = compared_cell.row("library")
    assert row is not None and row.speed is not None and row.speed.estimate == pytest.approx(4 / 3)
    answer_text = " ".join(answer(compared_cell, "local"))
    assert "without a codec" not in answer_text, "what the library did is not in the settings"


def test_a_path_with_a_sign_that_exists_is_a_path(
    tmp_path: Path, base: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("baseline=base1.log").write_text(base[0].read_text())
    ((submission, _),) = read([Path("baseline=base1.log")]).sections
    assert [run.scheme for run in submission.runs] == ["unknown"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("=base1.log", r"=base1\.log: no such file: to name a log's scheme, write NAME=FILE"),
        ("zfp=", r"zfp=: no such file: to name a log's scheme, write NAME=FILE"),
        ("zfp=nowhere.log", r"nowhere\.log: no such file"),
        ("zfp=osu.txt", r"osu\.txt: tables of micro-benchmarks have no scheme: give the file without NAME="),
        ("no/where=1/log.txt", r"no/where=1/log\.txt: no such file"),
    ],
)
def test_what_cannot_be_compared_is_told(
    tmp_path: Path, base: list[Path], monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("osu.txt").write_text(
        "# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n1      3.67\n2      7.34\n"
    )
    with pytest.raises(UserError, match=f"^{message}"):
        read([Path("baseline=base1.log"), Path(path)])
