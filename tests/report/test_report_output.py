"""Tests of the output of `report`: the table at two widths, and the formats for other programs."""

import csv
import io
import json
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.errors import UserError
from hpcbench.present.notation import flops_unit, parameters, significant
from hpcbench.report.build import MOST_NOTES, resolve_tables
from hpcbench.report.findings import INCONCLUSIVE
from hpcbench.report.main import report
from hpcbench.report.sections import read

RUNS = [
    Planted("baseline", 1, 0.3125, 2.71),
    Planted("baseline", 2, 0.32, 2.712),
    Planted("naive-zfp8", 1, 0.625, 2.95, 0.28),
    Planted("naive-zfp8", 2, 0.65, 2.952, 0.28),
    Planted("mzhybrid", 1, 0.5, 2.711, 0.7),
    Planted("mzhybrid", 2, 0.5, 2.713, 0.7),
]

# ruff: noqa: E501
# fmt: off
WIDE = """\
demo on local: gpt-tiny 0.8 M parameters, dp2 x tp2 x pp2, 8 ranks, 12 steps x 2 repeats      baseline: uncompressed, MPI library's collectives

No. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression does not pay: all schemes are slower than the baseline.

scheme       verdict                           samples/s   vs baseline (95 % CI)   loss (valid)          vs baseline (95 % CI)   wire/message
baseline                                           25.30                       -         2.7110                              -          1.000
naive-zfp8   ? not faster, loss worse [abcd]       12.55     0.50 (0.45 to 0.55)         2.9510   +0.2400 (+0.2400 to +0.2400)          0.280
mzhybrid     not faster [abcde]                    16.00     0.63 (0.54 to 0.74)         2.7120   +0.0010 (+0.0010 to +0.0010)          0.700

[a] fewer than 5 pairs of runs, [b] fewer than 100 counted steps, [c] the loss still falls, [d] ranks shared cores, [e] too few pairs to rule out rare failures

No cast to 16 bits (naive-bf16, naive-fp16) was run with the schemes: the gain of a codec over a cast is unknown.
Simplest of the schemes that no other scheme significantly beats: baseline.
"""
NARROW = """\
demo on local: gpt-tiny 0.8 M parameters, dp2 x tp2 x pp2, 8 ranks, 12 steps x 2
repeats
baseline: uncompressed, MPI library's collectives

No. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression does not
pay: all schemes are slower than the baseline.

scheme      verdict                          samples/s  vs baseline (95 % CI)
baseline                                         25.30                      -
naive-zfp8  ? not faster, loss worse [abcd]      12.55    0.50 (0.45 to 0.55)
mzhybrid    not faster [abcde]                   16.00    0.63 (0.54 to 0.74)

scheme      loss (valid)         vs baseline (95 % CI)  wire/message
baseline          2.7110                             -         1.000
naive-zfp8        2.9510  +0.2400 (+0.2400 to +0.2400)         0.280
mzhybrid          2.7120  +0.0010 (+0.0010 to +0.0010)         0.700

[a] fewer than 5 pairs of runs, [b] fewer than 100 counted steps, [c] the loss
still falls, [d] ranks shared cores, [e] too few pairs to rule out rare failures

No cast to 16 bits (naive-bf16, naive-fp16) was run with the schemes: the gain
of a codec over a cast is unknown.
Simplest of the schemes that no other scheme significantly beats: baseline.
"""
MARKDOWN = """\
**demo on local: gpt-tiny 0.8 M parameters, dp2 x tp2 x pp2, 8 ranks, 12 steps x 2 repeats; baseline: uncompressed, MPI library's collectives**

- No. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression does not pay: all schemes are slower than the baseline.

| scheme | verdict | samples/s | vs baseline (95 % CI) | loss (valid) | vs baseline (95 % CI) | wire/message |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| baseline |  | 25.30 | - | 2.7110 | - | 1.000 |
| naive-zfp8 | not faster, loss worse \\[abcd\\] | 12.55 | 0.50 (0.45 to 0.55) | 2.9510 | +0.2400 (+0.2400 to +0.2400) | 0.280 |
| mzhybrid | not faster \\[abcde\\] | 16.00 | 0.63 (0.54 to 0.74) | 2.7120 | +0.0010 (+0.0010 to +0.0010) | 0.700 |

- \\[a\\] fewer than 5 pairs of runs, \\[b\\] fewer than 100 counted steps, \\[c\\] the loss still falls, \\[d\\] ranks shared cores, \\[e\\] too few pairs to rule out rare failures
- No cast to 16 bits (naive-bf16, naive-fp16) was run with the schemes: the gain of a codec over a cast is unknown.
- Simplest of the schemes that no other scheme significantly beats: baseline.
"""
LATEX = r"""% Needs \usepackage{booktabs}.

\begin{itemize}\raggedright
\item No. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression does not pay: all schemes are slower than the baseline.
\end{itemize}
\begin{table}[htbp]
\centering\footnotesize
\caption{demo on local: gpt-tiny 0.8 M parameters, dp2 x tp2 x pp2, 8 ranks, 12 steps x 2 repeats; baseline: uncompressed, MPI library's collectives.}
\label{tab:comparison-1}
\begin{tabular}{@{}llrr@{}}
\toprule
scheme & verdict & samples/s & vs baseline (95 \% CI) \\
\midrule
baseline &  & 25.30 & -- \\
naive-zfp8 & not faster, loss worse {[}abcd{]} & 12.55 & 0.50 (0.45 to 0.55) \\
mzhybrid & not faster {[}abcde{]} & 16.00 & 0.63 (0.54 to 0.74) \\
\bottomrule
\end{tabular}
\par\medskip
\begin{tabular}{@{}lrrr@{}}
\toprule
scheme & loss (valid) & vs baseline (95 \% CI) & wire/message \\
\midrule
baseline & 2.7110 & -- & 1.000 \\
naive-zfp8 & 2.9510 & +0.2400 (+0.2400 to +0.2400) & 0.280 \\
mzhybrid & 2.7120 & +0.0010 (+0.0010 to +0.0010) & 0.700 \\
\bottomrule
\end{tabular}
\end{table}
\begin{itemize}\raggedright
\item {[}a{]} fewer than 5 pairs of runs, {[}b{]} fewer than 100 counted steps, {[}c{]} the loss still falls, {[}d{]} ranks shared cores, {[}e{]} too few pairs to rule out rare failures
\end{itemize}
\begin{itemize}\raggedright
\item No cast to 16 bits (naive-bf16, naive-fp16) was run with the schemes: the gain of a codec over a cast is unknown.
\item Simplest of the schemes that no other scheme significantly beats: baseline.
\end{itemize}
"""
# fmt: on


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "001", RUNS)


def stripped(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def test_the_table_at_full_width(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert report([root]) == 0
    out, err = capsys.readouterr()
    assert stripped(out) == WIDE
    assert err == ""


def test_the_table_at_eighty_columns(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report([root])
    out = capsys.readouterr().out
    assert stripped(out) == NARROW
    assert max(map(len, out.splitlines())) <= 80


def test_long_names_do_not_break_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write(tmp_path, [Planted("baseline", 1, 0.3, 2.7), Planted("z" * 64, 1, 0.3, 2.7)])
    report([tmp_path])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert INCONCLUSIVE in out


def test_into_a_file(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([root], "table", tmp_path / "table.txt") == 0
    assert (tmp_path / "table.txt").read_text() == WIDE
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_no_blanks_at_ends_and_no_codes(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for width in ("80", "120", "200"):
        monkeypatch.setenv("COLUMNS", width)
        report([root], tables="all")
        out = capsys.readouterr().out
        assert out == "".join(f"{line.rstrip()}\n" for line in out.splitlines()) and "\x1b" not in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    report([root], output=tmp_path / "report.txt")
    assert "\x1b" not in (tmp_path / "report.txt").read_text()
    report([root])
    assert "\x1b[1m" in capsys.readouterr().out, "who asks for colours in a pipe gets them"


def test_a_table_of_all_runs_has_a_title_of_its_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([root], "md", tables="runs")
    assert "\n**Runs**\n" in capsys.readouterr().out


def test_few_notes_stand_below_the_table_and_the_others_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    seconds = {"baseline": 0.4, "identity": 0.39, "naive-bf16": 0.3, "naive-mpc": 0.2, "mzhybrid": 0.41, "zfp": 0.1}
    runs = [
        Planted(scheme, k, time * (1 + k * len(scheme) / 999), 3.0 if scheme == "zfp" else 2.7)
        for k in (1, 2, 3)
        for scheme, time in seconds.items()
    ]
    runs += [Planted("zhybrid-16-8", k, 0.2 + k / 10, 2.7) for k in (1, 2, 3)]
    report([write(tmp_path, runs)])
    notes = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert len(notes) == MOST_NOTES and notes[-1].endswith(") and the method: --tables all.")
    report([tmp_path], tables="all")
    every = capsys.readouterr().out.splitlines()
    assert set(notes[:-1]) < set(every)
    assert "Method" in every and "The error level of 5 % applies to all findings" in "\n".join(every)
    (empty,) = (line for line in every if line.startswith("Tables without values in these runs: "))
    assert {"axes", "experts", "energy", "network"} <= set(empty.rstrip(".").partition(": ")[2].split(", "))


def test_published_figures_are_shown_on_request_only(root: Path) -> None:
    assert "published" not in resolve_tables("all") and "published" in resolve_tables("all,published")


def test_a_suffix_that_says_no_format_is_told(root: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"report\.pdf: \.pdf is not the suffix of a format: use \.txt, .*\.xml, or add --format"
    ):
        report([root], output=tmp_path / "report.pdf")
    assert not (tmp_path / "report.pdf").exists()
    report([root], "md", tmp_path / "report.pdf")
    report([root], output=tmp_path / "report")
    assert (tmp_path / "report").read_text() == WIDE


def test_markdown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([root], "md")
    assert capsys.readouterr().out == MARKDOWN


def test_latex(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([root], "latex")
    assert capsys.readouterr().out == LATEX


def test_the_suffix_of_the_file_tells_the_format(root: Path, tmp_path: Path) -> None:
    beginnings = {"md": "**demo", "tex": "% Needs", "csv": "study,site", "JSON": '{\n "version"', "txt": "demo on"}
    for suffix, beginning in beginnings.items():
        path = tmp_path / f"report.{suffix}"
        report([root], output=path)
        assert path.read_text().startswith(beginning)
    report([root], "csv", tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text().startswith("study,site")


def test_csv_has_a_row_a_scheme(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([root], "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["scheme"] for row in rows] == ["baseline", "naive-zfp8", "mzhybrid"]
    assert float(rows[2]["speed_ratio"]) == pytest.approx((0.3125 * 0.32 / 0.25) ** 0.5, rel=1e-12)
    assert rows[2]["speed_pairs"] == "2"
    assert float(rows[1]["loss_difference"]) == pytest.approx(0.24)
    assert rows[0]["speed_ratio"] == "" and rows[0]["verdict"] == ""
    assert float(rows[0]["step_seconds"]) == pytest.approx((0.3125 * 0.32) ** 0.5, rel=1e-12)
    assert rows[1]["wire_over_message_dp"] == "0.28" and rows[1]["wire_over_message_tp"] == ""
    assert (rows[1]["speed"], rows[1]["loss"], rows[1]["skipped"]) == ("not faster", "worse", "0")


def test_programs_get_what_the_verdicts_rest_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        Planted(scheme, k, seconds * (1 + 0.02 * (i * k % 3)), loss + 0.01 * (i * k % 4))
        for k in (1, 2, 3)
        for i, (scheme, seconds, loss) in enumerate(
            (("baseline", 0.4, 2.7), ("naive-zfp8", 0.3, 2.8), ("mzhybrid", 0.38, 2.7))
        )
    ]
    root = write(tmp_path / "001", runs)
    ((_, (cell,)),) = read([root]).sections
    report([root], "csv")
    table = {row["scheme"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    report([root], "json")
    document = json.loads(capsys.readouterr().out)
    objects = {row["scheme"]: row for row in document["submissions"][0]["cells"][0]["schemes"]}
    assert table["baseline"]["speed_p_equal"] == "" and objects["baseline"]["speed_p_equal"] is None
    enough = 0
    for row in cell.rows[1:]:
        assert row.speed and row.speed.equal and row.speed.at_margin and row.loss and row.loss.within and row.loss.apart
        assert row.loss_in_time and row.loss_in_time.within and row.loss_in_time.apart
        assert row.speed.apart
        expected = {
            "speed_p_equal": row.speed.equal.raw,
            "speed_p_equal_adjusted": row.speed.equal.adjusted,
            "speed_p_at_margin": row.speed.at_margin.raw,
            "speed_p_at_margin_adjusted": row.speed.at_margin.adjusted,
            "loss_p_within": row.loss.within.raw,
            "loss_p_apart_adjusted": row.loss.apart.adjusted,
            "loss_in_time_margin": row.loss_in_time.margin,
            "loss_in_time_p_within_adjusted": row.loss_in_time.within.adjusted,
            "loss_in_time_p_apart": row.loss_in_time.apart.raw,
            "speed_p_apart": row.speed.apart.raw,
            "loss_difference_worst": row.loss.worst,
            "speed_pairs_enough": row.speed.enough,
            "loss_pairs_enough": row.loss.enough,
            "loss_in_time_pairs_enough": row.loss_in_time.enough,
        }
        enough += sum(value is not None for name, value in expected.items() if name.endswith("enough"))
        assert {name: objects[row.scheme][name] for name in expected} == expected
        expected_values = {name: float(text) if (text := table[row.scheme][name]) else None for name in expected}
        assert expected_values == expected
    assert enough, "where nothing is shown, the number of pairs that would be enough is given"


def test_columns_of_csv_stay_where_they_are(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = (
        "study,site,cell,scheme,runs,completed,model_flops_per_rank,samples_per_s,tokens_per_s,speed_ratio,"
        "speed_ratio_low,speed_ratio_high,speed_pairs,wire_over_message,loss_valid,loss_difference,"
        "loss_difference_low,loss_difference_high,loss_pairs,loss_margin,verdict,step_seconds,"
    )
    report([root], "csv")
    head = capsys.readouterr().out.splitlines()[0]
    assert head.startswith(first) and ",host_bytes,skipped,nan_steps,loss_in_time_margin,speed_p_equal," in head


def test_json_has_everything_unrounded(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "runs" / "r2-mzhybrid" / "log.txt"
    path.write_text(path.read_text().split("step  4")[0] + "step  4/12 | loss nan | time 0.5000 s |\n")
    assert report([root], "json") == 1

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    document = json.loads(capsys.readouterr().out, parse_constant=refuse)
    (cell,) = document["submissions"][0]["cells"]
    schemes = {row["scheme"]: row for row in cell["schemes"]}
    assert schemes["naive-zfp8"]["speed_ratio"]["estimate"] == pytest.approx((0.3125 * 0.32 / 0.625 / 0.65) ** 0.5)
    assert schemes["naive-zfp8"]["speed"] == "not faster" and schemes["naive-zfp8"]["loss"] == "worse"
    assert schemes["mzhybrid"]["loss_valid"] is None
    runs = {run["run"]: run for run in cell["runs"]}
    assert runs["r1-baseline"]["step_seconds"] == 0.3125
    assert runs["r1-baseline"]["log"] == str(root / "runs" / "r1-baseline" / "log.txt")
    assert runs["r1-baseline"]["environment"]["mpi"] == "MPICH 5.0.2"
    assert runs["r2-mzhybrid"]["state"] == "nan"
    assert runs["r2-mzhybrid"]["diverged_at"] == 4
    assert document["schema"] == 5
    assert runs["r1-baseline"]["dimensions"][0]["dimension"] == "DP"
    assert schemes["naive-zfp8"]["loss_in_time_difference"]["pairs"] == 2


def test_units_follow_the_magnitude() -> None:
    assert flops_unit([3.2e9, None], gpu=False).name == "GFLOPS/rank"
    assert flops_unit([41.5e12, 0.9e12], gpu=True).name == "TFLOPS/GPU"
    assert flops_unit([41.5e12], gpu=True).show(41.5e12) == "41.50"
    assert flops_unit([2e6], gpu=False).show(2e6) == "2.000"
    assert flops_unit([], gpu=True).show(None) == "-"


def test_figures_have_four_digits() -> None:
    assert [significant(x) for x in (1234.5, 999.96, 25.641, 0.012361, 1e-9, None)] == [
        "1234", "1000.0", "25.64", "0.01236", "0.000000", "-",
    ]  # fmt: skip


def test_parameters_as_people_say_them() -> None:
    assert [parameters(n) for n in (820_000, 124_439_808, 20_600_000_000, 12_300)] == [
        "0.8 M", "124.4 M", "20.6 B", "12.3 K",
    ]  # fmt: skip


def test_gpus_are_called_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [Planted("baseline", 1, 1e-4, 2.7)], device="cuda")
    report([tmp_path], tables="speed")
    out = capsys.readouterr().out
    assert "TFLOPS/GPU" in out or "GFLOPS/GPU" in out
    assert "8 GPUs" in out


def test_what_all_runs_say_of_their_binding_is_shown_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = sorted(root.glob("runs/*/log.txt"))
    warning = {"event": "binding", "warnings": ["n1: ranks are not bound to separate cores", 7]}
    for path in logs:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:2], json.dumps(warning) + "\n", *lines[2:]]))
    assert len(logs) > 1
    for form in ("table", "md"):
        assert report([root], form) == 0
        assert capsys.readouterr().out.count("n1: ranks are not bound to separate cores") == 1
