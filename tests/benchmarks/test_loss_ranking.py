"""Tests of the benchmark that compares estimates with measured losses, on planted effects and losses."""

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from printed import Printed

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAFFIC = ("DP BACKWARD GRAD", "PP FORWARD ACT", "PP BACKWARD GRAD")
UPDATES = {"int8:256": 0.01, "int4:64": 0.2, "int2:32/256": 0.9}


@pytest.fixture(scope="module")
def ranking() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("loss_ranking", BENCHMARKS / "loss_ranking.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _plant(ranking: Any, truth: Callable[[str, str], float], noise: float = 0.0) -> Any:
    """Return the schemes of a study.

    The loss difference of a scheme is the sum of `truth` over the traffic that it encodes.
    """
    effects = {
        (traffic, codec): {"loss": 0.0, "descent": -update, "update": update**2 * (1 + place)}
        for place, traffic in enumerate(TRAFFIC)
        for codec, update in UPDATES.items()
    }
    used = {f"{traffic}-{codec}": {traffic: codec} for traffic in TRAFFIC for codec in UPDATES}
    used |= {f"all-{codec}": dict.fromkeys(TRAFFIC, codec) for codec in UPDATES}
    losses = {}
    for name, codecs in used.items():
        difference = sum(truth(traffic, codec) for traffic, codec in codecs.items())
        losses[name] = {"estimate": difference, "low": difference - noise, "high": difference + noise, "pairs": 3}
    return ranking.make_schemes(losses, used, effects)


def _exact(traffic: str, codec: str) -> float:
    return UPDATES[codec] ** 2 * (1 + TRAFFIC.index(traffic))


def test_an_exact_estimate_ranks_perfectly(ranking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "DRAWS", 50)
    schemes = _plant(ranking, _exact)
    rho, low, high = ranking.bound([schemes, schemes], "update")
    assert rho == pytest.approx(1) and low == pytest.approx(1) and high == pytest.approx(1)
    assert ranking.bound([schemes], "descent")[0] < -0.5, "the sign counts"
    assert math.isnan(ranking.bound([schemes], "loss")[0]), "a constant ranks nothing"


def test_swapped_traffic_ranks_worse(ranking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "DRAWS", 50)

    def swapped(traffic: str, codec: str) -> float:
        return UPDATES[codec] ** 2 * (1 + TRAFFIC[::-1].index(traffic)) ** 3

    assert ranking.bound([_plant(ranking, swapped)], "update")[0] < 0.97


def test_noise_of_losses_widens_the_interval(ranking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "DRAWS", 100)
    rho, low, _ = ranking.bound([_plant(ranking, _exact, noise=1.0)], "update")
    assert rho == pytest.approx(1) and low < 0.7


def test_schemes_whose_messages_are_not_the_values_are_left_out(ranking: Any) -> None:
    study = BENCHMARKS.parent / "studies/convergence-few-bits.yaml"
    names = ["naive-bf16", "naive-int8", "int4-dp", "int3-dp-feedback", "sdp4bit", "dynamiq"]
    file, used = ranking.prepare(study, names, [40], [])
    assert used == {
        "naive-int8": dict.fromkeys(
            ("DP BACKWARD GRAD", "ZERO STEP PARAM", "TP FORWARD ACT", "TP BACKWARD GRAD"), "int8:256"
        ),
        "int4-dp": {"DP BACKWARD GRAD": "int4:32/256:nonuniform"},
    }
    assert file["train"]["codec_effects"]["codecs"] == ["int4:32/256:nonuniform", "int8:256"]
    _, used = ranking.prepare(study, names, [40], [], every_scheme=True)
    assert used.keys() == {"naive-int8", "int4-dp", "sdp4bit", "dynamiq"}


@pytest.mark.long
def test_tiny(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    printed = tiny("loss_ranking.py", "--json", str(tmp_path / "ranking.json"))
    assert any("dp-int4" in line for line in printed.lines)
    content = json.loads((tmp_path / "ranking.json").read_text())
    (study,) = content["studies"].values()
    effects = {(each["traffic"], each["codec"]): each for each in study["effects"]}
    assert effects["DP BACKWARD GRAD", "int4:64"]["update"] > effects["DP BACKWARD GRAD", "zfp:8"]["update"] > 0
    assert effects["ZERO STEP PARAM", "int4:64"]["loss"] != 0 == effects["DP BACKWARD GRAD", "int4:64"]["loss"]
