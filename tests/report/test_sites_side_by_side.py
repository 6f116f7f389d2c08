"""Tests of reports on submissions from several sites. The gains of the schemes are shown side by side."""

import json
from pathlib import Path

from planted_results import Planted, write
from report_tables import entries

from hpcbench.present.document import Figure
from hpcbench.present.figures import png
from hpcbench.report.build import build
from hpcbench.report.sections import read


def on_site(root: Path, site: str, seconds: dict[str, float]) -> Path:
    """Write a submission from a site, with three runs of each scheme."""
    runs = [Planted(scheme, k, time * (1 + k / 999), 2.7) for k in (1, 2, 3) for scheme, time in seconds.items()]
    write(root, runs)
    for path in (root / "submission.json", *root.glob("runs/*/*.json"), *root.glob("runs/*/log.txt")):
        path.write_text(path.read_text().replace('"site": "local"', json.dumps("site") + f': "{site}"'))
    return root


def test_gains_of_two_sites_stand_side_by_side_and_first(tmp_path: Path) -> None:
    first = on_site(tmp_path / "a", "lassen", {"baseline": 0.4, "mzhybrid": 0.2, "naive-zfp8": 0.1})
    second = on_site(tmp_path / "b", "tioga", {"baseline": 0.4, "mzhybrid": 0.5, "naive-mpc": 0.3})
    document = build(read([first, second]).sections, figures=True)
    assert document.chapters[0].title == "Gain by site"
    rows = entries(document, "sites")
    assert list(rows) == ["mzhybrid"], "the other schemes ran on one site only"
    values = [rows["mzhybrid"][f"speed_ratio_{k}"].value for k in (1, 2)]
    assert isinstance(values[0], float) and isinstance(values[1], float)
    assert abs(values[0] - 2) < 1e-6 and abs(values[1] - 0.8) < 1e-6
    (figure,) = (block for block in document.chapters[0].blocks if isinstance(block, Figure))
    assert png(figure).startswith(b"\x89PNG")


def test_submissions_of_one_site_have_no_such_table(tmp_path: Path) -> None:
    times = {"baseline": 0.4, "mzhybrid": 0.2}
    roots = [on_site(tmp_path / name, "lassen", times) for name in "ab"]
    assert not entries(build(read(roots).sections), "sites")
