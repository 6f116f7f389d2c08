"""Tests of predictions made at submission, compared with the measurements."""

import json
import math
from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import entries

from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.plot_style import styled
from hpcbench.predict.prediction_file import NAME
from hpcbench.predict.store import store_prediction
from hpcbench.present.figures import drawn
from hpcbench.report.build import build
from hpcbench.report.plots.over_bandwidth import plot_gain_over_bandwidth
from hpcbench.report.predictions import read_network_times, read_predictions
from hpcbench.report.sections import read
from hpcbench.resources import data_dir
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study


def plant(
    root: Path,
    scale: float = 1.0,
    basis: str = "data sheet",
    network: tuple[float, float] = (0.0, 0.0),
    **predicted: float,
) -> Path:
    """Return two schemes with two repeats each, and their predictions."""
    runs = [
        Planted(scheme, repeat, scale * seconds, 2.7, cell={"nodes": 2})
        for repeat in (1, 2)
        for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.2))
    ]
    write(root, runs)
    document = {
        "schema": 1,
        "links": {"between": basis},
        "node_bytes_per_s": 1.25e9,
        "predictions": [
            {
                "cell": "nodes=2",
                "scheme": scheme.replace("_", "-"),
                "step_seconds": {"value": value, "low": 0.8 * value, "high": 1.2 * value, "basis": basis},
                "parts": {"waiting": 0.1 * value},
                "network_seconds": seconds,
                "against_baseline": {"bytes_per_s": 2.5e9} if scheme != "baseline" else None,
            }
            for (scheme, value), seconds in zip(predicted.items(), network, strict=False)
        ],
    }
    (root / NAME).write_text(json.dumps(document))
    return root


def test_predicted_stands_beside_measured_with_its_error(tmp_path: Path) -> None:
    document = build(
        read([plant(tmp_path / "001", baseline=0.44, naive_zfp8=0.1)]).sections,
        tables=("predicted", "prediction-error"),
    )
    table_rows = entries(document, "predicted")
    near, far = table_rows["baseline"], table_rows["naive-zfp8"]
    assert near["measured_step_seconds"].value == pytest.approx(0.4)
    assert near["prediction_error"].value == pytest.approx(0.1) and near["prediction_error"].tone == ""
    assert near["prediction_basis"].value == "data sheet"
    assert far["prediction_error"].value == pytest.approx(-0.5)
    assert far["prediction_error"].tone == "warning", "what was measured lies outside of the interval"
    every = entries(document, "prediction-error")["all runs"]
    assert every["runs"].value == 4
    assert every["mean_error"].value == pytest.approx(0.3) and every["worst_error"].value == pytest.approx(0.5)
    assert "nodes 2" in every["worst_cell"].shown


def test_errors_of_several_submissions_are_put_together(tmp_path: Path) -> None:
    roots = [plant(tmp_path / "001", baseline=0.4), plant(tmp_path / "002", 2.0, baseline=0.4)]
    document = build(read(roots).sections)
    every = [
        block for chapter in document.chapters if chapter.subtitle == "over all submissions" for block in chapter.blocks
    ]
    assert len(every) == 1
    table_rows = entries(document, "prediction-error")["all runs"]
    assert table_rows["runs"].value == 4 and table_rows["mean_error"].value == pytest.approx(0.25), (
        "the last one is of both"
    )


def test_a_prediction_that_rests_on_assumptions_is_left_out(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", basis="assumed", baseline=0.44, naive_zfp8=0.1)
    document = build(read([root]).sections, tables=("predicted", "prediction-error"))
    assert entries(document, "predicted") == entries(document, "prediction-error") == {}


def test_without_a_prediction_there_is_no_table(tmp_path: Path) -> None:
    write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    document = build(read([tmp_path / "001"]).sections)
    assert entries(document, "predicted") == entries(document, "prediction-error") == {}


def test_speed_over_the_bandwidth_of_the_network(tmp_path: Path) -> None:
    """A tenth of each step is spent waiting.

    With a network of 10 Gbit/s, the baseline waits 0.3 s for messages, and the scheme 0.1 s.
    """
    root = plant(tmp_path / "001", baseline=0.4, naive_zfp8=0.25, network=(0.3, 0.1))
    bandwidth, times = read_network_times(root)
    base, scheme = times["nodes=2", "baseline"], times["nodes=2", "naive-zfp8"]
    assert bandwidth == 1.25e9
    assert (base.compute_seconds(1), scheme.compute_seconds(1)) == pytest.approx((0.4, 0.25))
    assert base.compute_seconds(0.5) == pytest.approx((0.4 - 0.04 - 0.3 + 0.6) / 0.9)
    submission, cells = read([root]).sections[0]
    figure = plot_gain_over_bandwidth(submission, cells[0])
    assert figure is not None and "this machine, 10 Gbit/s" in figure.caption
    with styled(salt=""):
        (axes,) = drawn(figure).axes
    (curve,) = (line for line in axes.lines if len(line.get_xdata()) > 10)
    ratios = dict(zip((round(x, 6) for x in curve.get_xdata()), curve.get_ydata(), strict=True))
    assert ratios[10.0] == pytest.approx(1.6)
    assert max(ratios.values()) == pytest.approx(ratios[min(ratios)]) and 1.6 < ratios[min(ratios)] < 3.0
    (mark,) = (line for line in axes.lines if len(line.get_xdata()) == 1)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((10.0, 2.0)), "measured"
    row = entries(build([(submission, cells)], ("predicted",)), "predicted")["naive-zfp8"]
    assert row["break_even_gbit_per_s"].shown == "20"


@pytest.mark.parametrize(
    ("basis", "network"), [("assumed", (0.3, 0.1)), ("data sheet", (0.0, 0.0)), ("data sheet", (0.5, 0.1))]
)
def test_no_curve_without_a_known_bandwidth_or_traffic(
    tmp_path: Path, basis: str, network: tuple[float, float]
) -> None:
    root = plant(tmp_path / "001", basis=basis, network=network, baseline=0.4, naive_zfp8=0.25)
    submission, cells = read([root]).sections[0]
    assert plot_gain_over_bandwidth(submission, cells[0]) is None


def test_the_stored_times_are_those_of_the_prediction(tmp_path: Path) -> None:
    """The stored parts determine the time at the machine's bandwidth, and the break-even bandwidth."""
    study = data_dir("studies") / "demo.yaml"
    loaded, site = load_study(study, ["nodes=2", "ranks_per_node=1"]), load_site("vista")[0]
    runs = expand(loaded, site.capacity, offer(site))
    store_prediction(tmp_path, runs, site, study.parent)
    stored = read_predictions(tmp_path)
    bandwidth, times = read_network_times(tmp_path)
    assert bandwidth == 1e9 * site.network.bandwidth_gbit / 8 if site.network else None
    assert times.keys() == stored.keys() and times
    base = next(time for (_, scheme), time in times.items() if scheme == "baseline")
    for key, time in times.items():
        assert time.compute_seconds(1) == pytest.approx(stored[key].value)
        at = stored[key].break_even
        if at and math.isfinite(at):
            ends = [
                each.compute_seconds(at / bandwidth) * (each.seconds - each.waiting) / each.seconds
                for each in (base, time)
            ]
            assert ends[0] == pytest.approx(ends[1])
