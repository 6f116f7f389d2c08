"""The figures of messages as tables for people, and as JSON for programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcbench.bench.messages.anatomy import Anatomy, Between, Findings, Row
from hpcbench.bench.messages.coded import Coded
from hpcbench.bench.messages.spectrum import Spectrum
from hpcbench.bench.messages.verdict import Judged, sentence
from hpcbench.contract.text import printable
from hpcbench.present.notation import error
from hpcbench.present.records import encode

Figure = Callable[[Anatomy], float | None]
FIGURES: dict[str, Figure] = {
    "zeros": lambda one: one.fields.zeros,
    "exponent_bits": lambda one: one.fields.exponent,
    "sign_bits": lambda one: one.fields.sign,
    "mantissa_bits": lambda one: one.fields.mantissa,
    "lossless_bits": lambda one: one.fields.bits,
    "lossless_ratio": lambda one: one.fields.ratio,
    "log2_range": lambda one: one.magnitudes.log2_range,
    "beyond_6_sigma": lambda one: one.magnitudes.far,
    "max_over_rms": lambda one: one.magnitudes.peak,
    "kurtosis": lambda one: one.magnitudes.kurtosis,
    "not_finite": lambda one: one.magnitudes.not_finite,
}
"""Figures of a message, by their names in JSON."""
OF_MATRICES: dict[str, Callable[[Spectrum], float]] = {
    "effective_rank": lambda one: one.share,
    "effective_rank_gaussian": lambda one: one.control.effective / min(one.taken),
    "effective_rank_beside_gaussian": lambda one: one.beside_control,
    "rank_90": lambda one: one.ranks.of_energy_90 / min(one.taken),
    "rank_90_gaussian": lambda one: one.control.of_energy_90 / min(one.taken),
    "rank_99": lambda one: one.ranks.of_energy_99 / min(one.taken),
    "rank_99_gaussian": lambda one: one.control.of_energy_99 / min(one.taken),
}
"""Figures of a matrix, by their names in JSON. Ranks are parts of the smaller dim."""
OF_CODECS: dict[str, Callable[[Coded], float]] = {
    "ratio": lambda one: one.ratio,
    "relative_rmse": lambda one: one.relative_rmse,
    "relative_max": lambda one: one.relative_max,
}
_VALUES = (
    ("zeros", "zeros", "share"),
    ("exponent bits", "exponent_bits", ".2f"),
    ("lossless bound", "lossless_ratio", ".2f"),
    ("log2 range", "log2_range", ".0f"),
    ("beyond 6 sigma", "beyond_6_sigma", "share"),
    ("max/rms", "max_over_rms", ".1f"),
    ("kurtosis", "kurtosis", ".1f"),
)
"""Headings, figures and formats of the first table."""
_RANKS = (
    ("effective rank", "effective_rank"),
    ("Gaussian", "effective_rank_gaussian"),
    ("beside it", "effective_rank_beside_gaussian"),
    ("90 % energy", "rank_90"),
    ("Gaussian", "rank_90_gaussian"),
    ("99 % energy", "rank_99"),
    ("Gaussian", "rank_99_gaussian"),
)


Names = Mapping[tuple[str, str], str]
"""What tells runs apart, by study and scheme; empty where nothing does."""


def run_names(findings: Findings) -> Names:
    """Study, scheme, or both, where there are several."""
    known = sorted({(row.key.study, row.key.scheme) for row in findings.rows})
    studies, schemes = ({one[k] for one in known} for k in (0, 1))
    if len(known) == 1:
        return {}
    shown = [k for k, words in enumerate((studies, schemes)) if len(words) > 1]
    return {one: printable(" ".join(one[k] for k in shown), 40) for one in known}


def render(findings: Findings, judged: Judged, codecs: Sequence[str], console: Console) -> None:
    """Print the tables and the sentence."""
    several = run_names(findings)
    _title(console, "What is in the messages: median (least to most) over messages")
    console.print(_values(findings.rows, several))
    if any(row.spectra for row in findings.rows):
        console.print()
        _title(console, "Rank of the matrices in them, as parts of the smaller dim")
        console.print(_ranks(findings.rows, several))
    console.print()
    _title(console, "Codecs: ratio, and below it the relative RMS error: median, and the largest where it differs")
    console.print(_codecs(findings.rows, codecs, several))
    console.print()
    for words in notes(findings):
        console.print(Text(words, style="yellow"))
    console.print(Text(sentence(judged), style="bold"))


def notes(findings: Findings) -> list[str]:
    """What a reader must know of the messages that are not there."""
    found = []
    if findings.left_out:
        found.append(f"{findings.left_out} messages had no room in the runs: raise train.keep_messages.mb.")
    if findings.cut:
        found.append(f"{findings.cut} messages are their first values only: raise train.keep_messages.message_mb.")
    without = sum(message.without_rank for row in findings.rows for message in row.messages)
    if without:
        found.append(f"{without} matrices of zeros, or with NaN or infinities, have no rank and are left out.")
    bad = sum(message.magnitudes.not_finite > 0 for row in findings.rows for message in row.messages)
    if bad:
        found.append(f"{bad} messages hold NaN or infinities, which ranges and errors leave out.")
    return found


def as_json(findings: Findings, judged: Judged, machine: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """All figures, not rounded; null for missing and infinite ones."""
    document = {
        "schema": 1,
        "machine": dict(machine),
        "settings": dict(settings),
        "left_out": findings.left_out,
        "cut": findings.cut,
        "rows": [_row(row, settings["codecs"]) for row in findings.rows],
        "claim": {
            "holds": judged.holds,
            "sentence": sentence(judged),
            **{
                name: {**asdict(half), "low": half.low}
                for name, half in (
                    ("gradients", judged.gradients),
                    ("activations", judged.activations),
                    ("gradients_of_activations", judged.of_activations),
                )
            },
            "too_few_tokens": judged.too_few_tokens,
            "steps": judged.steps,
        },
    }
    return encode(document)


def _row(row: Row, codecs: Sequence[str]) -> dict[str, Any]:
    def written(between: Between | None) -> dict[str, float] | None:
        return asdict(between) if between else None

    return {
        **asdict(row.key),
        "messages": len(row.messages),
        "matrices_without_rank": sum(message.without_rank for message in row.messages),
        "bytes": row.nbytes,
        **{name: written(row.between(figure)) for name, figure in FIGURES.items()},
        "codecs": {
            codec: {name: written(row.of_codec(codec, figure)) for name, figure in OF_CODECS.items()}
            for codec in codecs
        },
        "matrices": [
            {
                "run": message.run,
                "tokens": message.tokens,
                "rank": message.rank,
                "message": message.place,
                "name": one.name,
                "shape": one.shape,
                "taken": one.taken,
                **{name: figure(one) for name, figure in OF_MATRICES.items()},
            }
            for message in row.messages
            for one in message.spectra
        ],
    }


def _title(console: Console, words: str) -> None:
    console.print(Text(words, style="bold"))


def _table(headings: Sequence[str], several: Names) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in (*(("run",) if several else ()), "channel"):
        table.add_column(heading, overflow="fold")
    table.add_column("step", justify="right")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _names(row: Row, several: Names) -> list[str]:
    names = [several[row.key.study, row.key.scheme]] if several else []
    return [*names, printable(row.key.channel, 40), str(row.key.step)]


def _values(rows: Sequence[Row], several: Names) -> Table:
    table = _table(("operation", "type", "messages", "MB", *(heading for heading, _, _ in _VALUES)), several)
    for row in rows:
        figures = [shown(row.between(FIGURES[name]), how) for _, name, how in _VALUES]
        about = [row.key.operation, row.key.dtype, str(len(row.messages)), f"{row.nbytes / 1e6:.2f}"]
        table.add_row(*_names(row, several), *about, *figures)
    return table


def _ranks(rows: Sequence[Row], several: Names) -> Table:
    table = _table(("matrices", "shapes", *(heading for heading, _ in _RANKS)), several)
    for row in rows:
        found = row.spectra
        if found:
            figures = [Between.of([OF_MATRICES[name](one) for one in found]) for _, name in _RANKS]
            table.add_row(
                *_names(row, several), str(len(found)), _shapes(found), *(shown(one, ".2f") for one in figures)
            )
    return table


def _shapes(found: Sequence[Spectrum]) -> str:
    shapes = sorted({one.shape for one in found})
    return " x ".join(map(str, shapes[0])) if len(shapes) == 1 else f"{len(shapes)} shapes"


def _codecs(rows: Sequence[Row], codecs: Sequence[str], several: Names) -> Table:
    table = _table([printable(codec, 30) for codec in codecs], several)
    for row in rows:
        table.add_row(*_names(row, several), *(_cell(row, codec) for codec in codecs))
    return table


def _cell(row: Row, codec: str) -> str:
    ratio, rmse = row.of_codec(codec, OF_CODECS["ratio"]), row.of_codec(codec, OF_CODECS["relative_rmse"])
    if ratio is None or rmse is None:
        return "-"
    if not rmse.most and all(message.coded[codec].exact for message in row.messages):
        return f"{ratio.median:.2f}\nexact"
    middle, worst = error(rmse.median), error(rmse.most)
    return f"{ratio.median:.2f}\n{middle}" + (f" to {worst}" if worst != middle else "")


def shown(between: Between | None, how: str) -> str:
    """A figure as its median, with least and most in brackets where they differ from it when rounded."""
    if between is None:
        return "-"
    least, median, most = (_figure(value, how) for value in (between.least, between.median, between.most))
    return median if least == median == most else f"{median} ({least} to {most})"


def _figure(value: float, how: str) -> str:
    if how != "share":
        return format(value, how)
    return "0" if value == 0 else f"{value:.1e}" if value < 0.001 else f"{value:.1%}"
