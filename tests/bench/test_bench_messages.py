"""``hpcbench bench messages``: what it says of planted messages, its files, and what it refuses."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from kept_runs import gaussian, low, message, write_run

from hpcbench import cli
from hpcbench.bench.messages import coded, verdict
from hpcbench.contract import kept
from hpcbench.contract.kept import KeptMessage, KeptStep

GRAD, ACT, BACK = "DP BACKWARD GRAD", "TP FORWARD ACT", "PP BACKWARD GRAD"
SHAPES = ((64, 32), (24, 48))


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hpcbench", "bench", "messages", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def planted(gradients: int | None, activations: int | None, each: int = 4) -> dict[int, list[KeptMessage]]:
    """Messages of two steps whose matrices have these ranks; None for Gaussian ones."""

    def matrix(rank: int | None, k: int) -> np.ndarray:
        shape = SHAPES[k % 2]
        return gaussian(shape, k) if rank is None else low(shape, rank, k, noise=1e-3)

    return {
        step: [
            *(message(GRAD, {f"w{k}": matrix(gradients, 100 * step + k)}, k) for k in range(each)),
            *(message(ACT, {"": matrix(activations, 100 * step + 50 + k)}, k) for k in range(each)),
        ]
        for step in (20, 60)
    }


def claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *ranks: int | None, **others: int) -> dict[str, object]:
    directory = write_run(tmp_path, planted(*ranks, **others))
    assert bench(monkeypatch, str(directory), "--codec", "mpc", "--json", str(tmp_path / "x.json")) == 0
    found: dict[str, object] = json.loads((tmp_path / "x.json").read_text())["claim"]
    return found


@pytest.mark.parametrize(
    ("ranks", "holds", "words"),
    [
        ((2, None), True, "holds here: "),
        ((None, 2), False, "does not hold here: "),
        ((None, None), False, "does not hold here: "),
        ((2, 2), False, "does not hold here: "),
    ],
)
def test_the_sentence_follows_from_planted_ranks(monkeypatch, tmp_path, capsys, ranks, holds, words) -> None:
    said = claim(monkeypatch, tmp_path, *ranks)
    assert said["holds"] is holds and words in str(said["sentence"])
    assert " ".join(str(said["sentence"]).split()) in " ".join(capsys.readouterr().out.split())
    gradients = said["gradients"]
    assert gradients["matrices"] == 8 and gradients["shapes"] == 2 and gradients["low"] is (ranks[0] == 2)
    assert gradients["least"] <= gradients["median"] <= gradients["most"]


def test_too_few_matrices_show_nothing(monkeypatch, tmp_path) -> None:
    said = claim(monkeypatch, tmp_path, 2, None, each=2)
    assert said["holds"] is None and str(said["sentence"]).startswith("Not shown: ")


def test_shapes_that_disagree_decide_nothing(monkeypatch, tmp_path) -> None:
    steps = {20: [message(GRAD, {f"w{k}": low(SHAPES[0], 2, k)}, k) for k in range(20)]}
    steps[20] += [message(GRAD, {"v": gaussian(SHAPES[1], 5)}, 20)]
    steps[20] += [message(ACT, {"": gaussian(SHAPES[0], 90 + k)}, k) for k in range(6)]
    directory = write_run(tmp_path, steps)
    assert bench(monkeypatch, str(directory), "--codec", "mpc", "--json", str(tmp_path / "x.json")) == 0
    said = json.loads((tmp_path / "x.json").read_text())["claim"]
    assert said["gradients"]["most"] < verdict.LOW, "the median alone would say low"
    assert said["gradients"]["low"] is None and said["holds"] is None and "not shown here" in said["sentence"]


def test_keys_and_values_by_head_do_not_count(monkeypatch, tmp_path) -> None:
    steps = planted(2, None)
    steps[20] += [message("CP FORWARD ACT", {"": low(SHAPES[0], 1, k)}, k) for k in range(20)]
    directory = write_run(tmp_path, steps)
    assert bench(monkeypatch, str(directory), "--codec", "mpc", "--json", str(tmp_path / "x.json")) == 0
    said = json.loads((tmp_path / "x.json").read_text())["claim"]
    assert said["holds"] is True and said["activations"]["matrices"] == 8


def test_gradients_of_few_tokens_do_not_count(monkeypatch, tmp_path) -> None:
    """32 tokens a rank give no gradient a rank above 32, whatever is learned."""
    matrices = {f"w{k}": low((80, 40), 3, k) for k in range(8)}
    directory = write_run(tmp_path, {20: [message(GRAD, matrices)]}, batch=1)
    assert bench(monkeypatch, str(directory), "--codec", "mpc", "--json", str(tmp_path / "x.json")) == 0
    said = json.loads((tmp_path / "x.json").read_text())["claim"]
    assert (said["too_few_tokens"], said["gradients"]["matrices"]) == (8, 0)
    assert said["sentence"].startswith("Not shown") and "8 more of gradients" in said["sentence"]


@pytest.mark.parametrize("n", [*range(6, 30), 60, 101])
def test_order_statistics_hold_the_median_in_95_percent(n: int) -> None:
    """By counting all ways in which n fair coins fall, as far as they are needed."""
    outside = verdict.order(n)
    ways = np.array([1], dtype=object)
    for _ in range(n):
        ways = np.append(ways, 0) + np.append(0, ways)
    held = sum(ways[outside + 1 : n - outside])
    assert 20 * held >= 19 * 2**n, "in 95 % of cases"
    assert 20 * sum(ways[outside + 2 : n - outside - 1]) < 19 * 2**n, "and no shorter one does"


def test_a_submission_with_several_schemes_names_them_and_has_files(monkeypatch, tmp_path, capsys) -> None:
    few = {20: [message(GRAD, {"w": low(SHAPES[0], 2, 1)}), message(BACK, {"": gaussian(SHAPES[0], 2)})]}
    for scheme in ("baseline", "naive-zfp8"):
        write_run(tmp_path, few, scheme)
    arguments = ["--json", str(tmp_path / "x.json"), "--plot", str(tmp_path / "x.svg")]
    monkeypatch.setenv("COLUMNS", "220")
    assert bench(monkeypatch, str(tmp_path), *arguments) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("run", "naive-zfp8", "exact", "effective rank", "Gaussian", "64 x 32"))
    data = json.loads((tmp_path / "x.json").read_text())
    assert [(row["scheme"], row["channel"], row["step"]) for row in data["rows"]] == [
        (scheme, channel, 20) for scheme in ("baseline", "naive-zfp8") for channel in (GRAD, BACK)
    ]
    row = data["rows"][0]
    assert row["codecs"].keys() == set(coded.DEFAULT) and row["codecs"]["xpk"]["relative_rmse"]["most"] == 0
    (matrix,) = row["matrices"]
    assert matrix["name"] == "w" and matrix["rank"] == 3 and 0 < matrix["effective_rank_beside_gaussian"] < 0.2
    svg = (tmp_path / "x.svg").read_text()
    assert (
        "naive-zfp8: DP bwd GRAD, all-reduce" in svg and "step 20" in svg and "(filled int8:256, hollow zfp:8)" in svg
    )


def test_messages_that_are_missing_or_cut_are_said(monkeypatch, tmp_path, capsys) -> None:
    directory = write_run(tmp_path, {})
    whole = message(GRAD, {"w": np.zeros((16, 8))})
    own = KeptMessage(
        *(getattr(whole, name) for name in ("channel", "operation", "place", "dtype")), 9999, whole.parts, whole.values
    )
    kept.write(directory / kept.DIRECTORY, KeptStep(0, 2, (own,), left_out=4))
    assert bench(monkeypatch, str(directory), "--codec", "mpc") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "4 messages had no room" in out and "1 messages are their first values only" in out
    assert "1 matrices of zeros, or with NaN or infinities, have no rank" in out and "Not shown" in out


def test_a_lossless_codec_that_loses_a_bit_is_a_defect(monkeypatch, tmp_path, capsys) -> None:
    class Lossy:
        def __init__(self, codec) -> None:
            self._codec = codec

        def __getattr__(self, name):
            return getattr(self._codec, name)

        def decode(self, wire, out, **others) -> None:
            self._codec.decode(wire, out, **others)
            out.view(np.uint8)[5] ^= 1

    real = coded.get_codec
    monkeypatch.setattr(coded, "get_codec", lambda name: Lossy(real(name)) if name == "xpk" else real(name))
    directory = write_run(tmp_path, {7: [message(GRAD, {"w": gaussian((16, 8), 1)})]})
    assert bench(monkeypatch, str(directory)) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"xpk: does not give every bit back ({GRAD}, step 7, rank 3, message 0)" in out and "mpc: " not in out


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "no such directory"),
        ("study", "is a file, and messages lie in directories of runs: submit a study with `train: {keep_messages"),
        ("empty", "no run in it has kept messages: submit a study with"),
        ("cut", "not a whole file of messages: it was cut or changed: remove it"),
        ("changed", "not a whole file of messages"),
        ("other", "not a whole file of messages"),
        ("renamed", "holds step 7 of rank 3, and its name says otherwise: name it step-7-rank-3.zip"),
        ("nothing", "the files hold no messages"),
        ("codec", "zpf:8"),
        ("plot", "name a file that ends in .png or .svg"),
    ],
)
def test_refusals_are_one_line(monkeypatch, tmp_path, capsys, what: str, words: str) -> None:
    directory = write_run(tmp_path, {7: [] if what == "nothing" else [message(GRAD, {"w": gaussian((16, 8), 1)})]})
    file = directory / kept.DIRECTORY / kept.file_name(7, 3)
    arguments = {"codec": ["--codec", "zpf:8"], "plot": ["--plot", str(tmp_path / "x.pdf")]}.get(what, [])
    place, content = directory, file.read_bytes()
    if what == "missing":
        place = tmp_path / "gone"
    elif what == "study":
        place = directory / "run.json"
    elif what == "empty":
        file.unlink()
    elif what == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif what == "changed":
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif what == "other":
        file.write_bytes(b"not an archive")
    elif what == "renamed":
        file.rename(file.with_name(kept.file_name(8, 3)))
    assert bench(monkeypatch, str(place), *arguments) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1 and err.startswith("hpcbench: ")
