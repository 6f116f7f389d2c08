"""Tests of the titles of report tables."""

from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import cell

from hpcbench.report.titles import write_title


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ('"chunks": 1, "stages": []', "dp2 x tp2 x pp2, 8 ranks"),
        ('"chunks": 1, "stages": [], "ep": 1', "dp2 x tp2 x pp2, 8 ranks"),
        ('"chunks": 1, "stages": [], "ep": 2', "dp2 x tp2 x pp2 with ep2 in dp, 8 ranks"),
        ('"chunks": 2, "stages": []', "dp2 x tp2 x pp2 in 2 chunks, 8 ranks"),
        ('"chunks": 1, "cp": 1, "context": "ring", "stages": []', "dp2 x tp2 x pp2, 8 ranks"),
        ('"chunks": 1, "cp": 2, "context": "rsa", "stages": []', "dp2 x tp2 x cp2 x pp2 with context rsa, 8 ranks"),
        ('"chunks": 1, "stages": [1, 3]', "dp2 x tp2 x pp2 of 1+3 layers, 8 ranks"),
    ],
)
def test_how_stages_are_cut_is_said_where_it_was_chosen(tmp_path: Path, cut: str, message: str) -> None:
    write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7)])
    for path in (tmp_path / "001").rglob("runs/*/*.*"):
        path.write_text(path.read_text().replace('"chunks": 1, "stages": []', cut))
    assert message in write_title(cell(tmp_path / "001"))[0]
