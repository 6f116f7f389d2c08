"""What ``hpcbench predict`` prints, as tables for a terminal, Markdown, JSON or a page."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict.basis import Figure
from hpcbench.predict.command import document, predict_study
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import KINDS, PEAKS, format_bytes, remedy
from hpcbench.predict.partition.plans import words
from hpcbench.predict.prediction import Prediction
from hpcbench.predict.step import PARTS
from hpcbench.predict.verdict import EQUAL, BreakEven

Table = tuple[str, list[str], list[list[str]]]
"""Title, headings, rows."""
FORMATS = ("table", "md", "json", "html")
_SUFFIXES = {".md": "md", ".json": "json", ".html": "html", ".htm": "html"}


def show(
    study: Path,
    *,
    site: str | None,
    measured: Path | None,
    ranks: Sequence[int],
    sets: Sequence[str],
    format: str | None,
    output: Path | None,
    plots: Path | None,
    only: str | None = None,
    partition: bool = False,
) -> int:
    """Predict and print; gives the exit status: 1 where a run does not fit.

    Raises
    ------
    UserError
        Study, site or options are wrong.
    """
    format = _resolve_format(format, output)
    found, about, machine = predict_study(
        study, site=site, measured=measured, ranks=ranks, sets=sets, only=only, partition=partition
    )
    drawn: dict[str, Path] = {}
    if plots is not None or format == "html":
        from hpcbench.predict.plots import draw

        drawn = draw(found, about, machine, plots or (output.parent if output else Path.cwd()))
    if format == "table" and output is None:
        _print_tables(found, about, machine)
    else:
        text = {
            "json": lambda: json.dumps(document(found, about, machine), indent=1) + "\n",
            "md": lambda: _markdown(found, about, machine),
            "table": lambda: _markdown(found, about, machine),
            "html": lambda: _html(found, about, machine, drawn),
        }[format]()
        if output is None:
            print(text, end="")
        else:
            output.write_text(text, encoding="utf-8")
    return int(any(one.memory.fits is False for one in found))


def _resolve_format(wanted: str | None, output: Path | None) -> str:
    """Return the format by its name, or by the suffix of the file; without either, the terminal's."""
    if wanted is not None and wanted not in FORMATS:
        raise UserError(f"--format {wanted}: is unknown: use {', '.join(FORMATS)}")
    if wanted or output is None:
        return wanted or "table"
    if output.suffix.lower() not in _SUFFIXES:
        raise UserError(f"--output {output}: its suffix is none of {', '.join(_SUFFIXES)}: change it, or add --format")
    return _SUFFIXES[output.suffix.lower()]


def tables(found: Sequence[Prediction], machine: Machine) -> list[Table]:
    """The same tables for every format."""
    return [_time(found, machine), _split(found), _memory(found), _traffic(found)]


def notes(found: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> list[str]:
    """What the numbers rest on, and what the reader must know, one sentence each."""
    products, fabric = about["products"], machine.fabric
    lines = [
        f"Products: {products['basis']} ({products['source']}). Links: "
        f"{fabric.describe(between=False)} ({fabric.within_basis.value}), "
        f"{fabric.describe(between=True)} ({fabric.between_basis.value}).",
        "Intervals come from the errors of these inputs; they are no confidence intervals of repeated runs.",
    ]
    lines += about["learned"]
    if about["measured"]:
        lines.append(f"Measured here: {', '.join(about['measured'])}.")
    elif not about["learned"]:
        lines.append(
            "Nothing was measured here: `hpcbench bench gemm` and `hpcbench bench network` narrow the intervals."
        )
    lines += words(about["plans"])
    for one in found:
        if one.against:
            lines.append(f"{_name(one)}: {one.against.words}.")
        if one.memory.fits is False:
            lines.append(f"{_name(one)}: does not fit: {remedy(one.subject, one.memory)}.")
    return lines


def _name(one: Prediction) -> str:
    return " ".join(part for part in (one.scheme, f"({one.cell})" if one.cell else "") if part)


def _interval(figure: Figure, digits: int = 3) -> str:
    return f"{figure.value:.{digits}g} ({figure.low:.{digits}g} to {figure.high:.{digits}g})"


def _time(found: Sequence[Prediction], machine: Machine) -> Table:
    heads = ["cell", "ranks", "scheme", "step s", "samples/s", "TFLOPS", "MFU", "gain", "break-even Gbit/s", "rests on"]
    rows = []
    for one in found:
        rows.append(
            [
                one.cell or "-",
                str(one.subject.layout.ranks),
                one.scheme,
                _interval(one.time.seconds),
                f"{one.samples_per_s.value:.4g}",
                f"{one.tflops:.3g}",
                f"{100 * one.tflops * 1e12 / machine.device.peak(one.subject.train.precision):.1f} %",
                _gain(one.against),
                describe_break_even(one.against),
                one.time.seconds.basis.value,
            ]
        )
    return "Predicted time of a step", heads, rows


def _gain(against: BreakEven | None) -> str:
    if against is None:
        return "-"
    return "unknown" if against.gain is None else f"{100 * against.gain:+.1f} %"


def describe_break_even(against: BreakEven | None) -> str:
    """Return the bandwidth of a break-even in Gbit/s, or what holds at every bandwidth."""
    if against is None:
        return "-"
    if against.bytes_per_s is None:
        return "unknown"
    if 0 < against.bytes_per_s < math.inf:
        return f"{against.bytes_per_s * 8e-9:.3g}"
    if against.gain is None or abs(against.gain) < EQUAL:
        return "none: as fast as the baseline"
    if against.bytes_per_s == math.inf:
        return "none: faster at any bandwidth"
    # Without fewer bytes between nodes, a gain comes from less work and is the same on slow networks, or smaller.
    return "none: saves no bytes between nodes" if against.gain > 0 else "none: slower at any bandwidth"


def _split(found: Sequence[Prediction]) -> Table:
    used = [part for part in PARTS if any(one.time.parts[part] > 0 for one in found)]
    rows = [
        [one.cell or "-", one.scheme, *(f"{100 * one.time.parts[part] / one.time.seconds.value:.1f}" for part in used)]
        for one in found
    ]
    return "Where it goes, in percent, on the stage that works longest", ["cell", "scheme", *used], rows


def _memory(found: Sequence[Prediction]) -> Table:
    rows = []
    for one in found:
        for peak in PEAKS:
            kinds = one.memory.peaks[peak]
            fits = {True: "yes", False: "NO", None: "?"}[one.memory.fits] if peak == one.memory.peak else ""
            rows.append(
                [
                    one.cell or "-",
                    one.scheme,
                    peak,
                    *(format_bytes(kinds[kind]) for kind in KINDS),
                    format_bytes(sum(kinds.values())),
                    fits,
                ]
            )
    return "Memory of the rank that needs the most", ["cell", "scheme", "peak", *KINDS, "all", "fits"], rows


def _traffic(found: Sequence[Prediction]) -> Table:
    rows = [
        [
            one.cell or "-",
            one.scheme,
            " ".join(key),
            format_bytes(sent.message_bytes),
            format_bytes(sent.wire_bytes),
            format_bytes(sent.network_bytes),
        ]
        for one in found
        for key, sent in one.time.channels.items()
    ]
    return (
        "What a rank sends in a step, the mean of the stages' first ranks",
        ["cell", "scheme", "channel", "message", "wire", "between nodes"],
        rows,
    )


def _print_tables(found: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    from hpcbench.console import show_table

    for title, heads, rows in tables(found, machine):
        table = RichTable(title=Text(title), title_justify="left", box=None, pad_edge=False)
        for head in heads:
            table.add_column(head, justify="left" if head in ("cell", "scheme", "peak", "channel") else "right")
        for row in rows:
            table.add_row(*map(Text, row))
        show_table(table, unbound=200)
        print()
    print("\n".join(notes(found, about, machine)))


def _markdown(found: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> str:
    lines = [f"# {about['study']} on {about['site']}, predicted", ""]
    for title, heads, rows in tables(found, machine):
        lines += [f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes(found, about, machine))]) + "\n"


def _html(found: Sequence[Prediction], about: dict[str, Any], machine: Machine, drawn: dict[str, Path]) -> str:
    from html import escape

    def cells(row: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"

    title = escape(f"{about['study']} on {about['site']}, predicted")
    body = [f"<h1>{title}</h1>", "<ul>", *(f"<li>{escape(one)}</li>" for one in notes(found, about, machine)), "</ul>"]
    for caption, path in drawn.items():
        body += [f"<h2>{escape(caption)}</h2>", path.read_text(encoding="utf-8").partition("?>")[2]]
    for name, heads, rows in tables(found, machine):
        body += [f"<h2>{escape(name)}</h2><table>", cells(heads, "th"), *(cells(row, "td") for row in rows), "</table>"]
    style = "body{font:15px sans-serif;margin:2em;max-width:75em}td,th{padding:.2em .7em;text-align:right}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
        + "\n".join(body)
        + "</html>\n"
    )
