"""Tests of benchmarks/predict_measured.py: its output for synthetic cells, and the complete script in its tiny form."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from printed import Printed

from hpcbench.contract.layout import Layout
from hpcbench.predict import volume
from hpcbench.predict.workload import make_train
from hpcbench.testing.hosts import why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Modules of the benchmark by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return lambda name: import_module(f"predicted.{name}")


def test_only_pairs_that_repeats_tell_apart_count_for_the_order(predicted: Callable[[str], Any]) -> None:
    """Scheme a is clearly faster than b, and c is within the noise of both. The predicted order of a and b is wrong."""
    compare = predicted("compare")
    cells = [
        compare.Cell("s", "a", 2.2, (1.0, 1.1, 1.2)),
        compare.Cell("s", "b", 2.1, (2.0, 2.1, 2.2)),
        compare.Cell("s", "c", 2.0, (1.15, 1.9, 2.05)),
        compare.Cell("other", "a", 1.0, (9.0, 9.1, 9.2)),
    ]
    assert compare.order(cells) == compare.Order(pairs=3, distinct=1, right=0)
    assert cells[0].error == pytest.approx(1.0)
    assert compare.summary([0.1, -0.3]) == "mean 20.0 %, median -10.0 %, worst 30.0 %"


def test_how_alike_a_machine_is_to_itself(predicted: Callable[[str], Any]) -> None:
    output = predicted("compare").drift([(1.0, 2.0, 9.0), (4.0, 5.0)], [(2.0, 2.0), (3.0,)])
    assert output == "the same runs took 1.25 times as long as before in the mean, 1.00 to 1.50 times"


def test_a_byte_that_is_not_predicted_is_told(predicted: Callable[[str], Any]) -> None:
    class Run:
        train = make_train(global_batch=8, micro_batch=1, seq_len=32, zero=1)
        layout = Layout(dp=4)
        model = import_module("hpcbench.contract.training").Model(layers=2, hidden=32, heads=2)
        shape = None

    built = Run()
    sums: dict[str, int] = {}
    for key, nbytes in volume.count_all_ranks_bytes(built.model, built.train, built.layout).items():
        sums[key[0]] = sums.get(key[0], 0) + nbytes
    differ = predicted("compare").bytes_differ
    traffic = {name: {"message_bytes": float(nbytes)} for name, nbytes in sums.items()}
    assert differ(built, traffic) == []
    traffic["DP"]["message_bytes"] += 1
    assert differ(built, traffic) == [f"DP: {sums['DP'] + 1} counted, {sums['DP']} predicted"]


def test_ten_studies_of_eight_ranks_and_none_is_the_calibration(predicted: Callable[[str], Any]) -> None:
    studies = predicted("studies")
    assert len({study.name for study in studies.STUDIES}) == 10 and studies.SHAPE.ranks == 8
    assert studies.CALIBRATION.settings not in [study.settings for study in studies.STUDIES]
    rates = {study.rate for study in studies.STUDIES}
    assert {"50mbit", "1gbit"} <= rates and studies.CALIBRATION.rate not in rates


@pytest.mark.long
def test_the_tiny_form_measures_and_compares(
    tiny: Callable[..., Printed], need: Callable[[str | None], None], tmp_path: Path
) -> None:
    need(why_not())
    stored = str(tmp_path / "kept")
    lines = tiny("predict_measured.py", "--out", str(tmp_path / "found.json"), "--keep", stored).lines
    for word in ("by the tables alone", "with what the earlier run taught"):
        (line,) = [line for line in lines if line.startswith(f"step time {word}")]
        assert re.search(r"mean \d+\.\d %, median [+-]\d+\.\d %, worst \d+\.\d %", line)
    assert "message bytes of the baseline: exact in 1 of 1 runs" in lines
    assert any(re.match(r"measured on \d+ cores? of ", line) for line in lines)
    (memory,) = [line for line in lines if line.startswith("peak memory of a rank")]
    worst = re.search(r"worst (\d+\.\d) %", memory)
    assert worst and float(worst[1]) < 25, "allocations do not depend on the machine"
    assert (tmp_path / "found.json").stat().st_size > 100
    again = tiny("predict_measured.py", "--again", stored, "--before", stored).lines
    assert "the same runs took 1.00 times as long as before in the mean, 1.00 to 1.00 times" in again
    again = [line for line in again if not line.startswith("the same runs")]
    output = [line for line in lines if not line.startswith(("#", "["))]
    assert [line for line in again if not line.startswith("#")] == output, (
        "predictions of stored measurements are identical"
    )
