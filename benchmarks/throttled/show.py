"""Tables and sentences of one part, for a terminal and for a file."""

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from throttled import curve
from throttled.compare import Column, Row, columns, rows, share_of_link
from throttled.words import KNOWN_WORSE, loss_note, sentences, shown

from hpcbench.console import UNBOUND

LEGEND = """\
speed: samples/s over the baseline's, a ratio over pairs of runs of one repeat, with Student's 95 % interval.
by the link: that ratio over the same ratio without a limit, paired by repeat: the processors' part falls out.
by bytes: what "by the link" would be if the limit cost the baseline only the bytes that the scheme sends.
wire: bytes between hosts, of those of the same algorithm without a codec (identity).
exposed, hidden: seconds of communication in a step that a rank waited for, and that passed while it computed."""


def told(document: dict[str, Any], head: Iterable[str]) -> str:
    """All that the part says, as text."""
    text = io.StringIO()
    console = Console(file=text, width=UNBOUND, highlight=False)
    for line in (*head, ""):
        console.print(line, soft_wrap=True, markup=False)
    for line in about(document):
        console.print(line, markup=False)
    found = columns(document)
    for thing in (*(curve.tables(found, document) if curve.fits(found) else tables(found, document)), *notes(document)):
        console.print(*(("",) if thing == "" else (thing,)), markup=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def about(document: dict[str, Any]) -> list[str]:
    """What was run."""
    run, train = document["run"], document["run"]["train"]
    repeats = len({run["repeat"] for run in document["runs"]})
    cores = "ranks share cores" if run["oversubscribe"] else "a core for each rank"
    asked = document["asked"]["shares"]
    chosen = (
        "Rates are a choice: they were taken so that the link costs the baseline about "
        f"{' and '.join(f'{share:.0f}' for share in asked)} % of its time; a gain holds for such a share."
        if asked
        else "Rates are a choice: they were given by name; a gain holds for the share of time that they cost."
    )
    return [
        f"{document['part']}: {document['title']}",
        f"{run['model']['name']}, {train['precision']}, messages {train['comm_precision']}, ZeRO-{train['zero']}, "
        f"{train['steps'] - train['warmup_steps']} counted steps of {train['global_batch']} x {train['seq_len']} tokens after "
        f"{train['warmup_steps']}; {run['ranks']} ranks, {cores}; {repeats} repeats, schemes in rotated order.",
        chosen,
        "",
    ]


def tables(found: list[Column], document: dict[str, Any]) -> Iterable[Any]:
    """The summary, and then a table and its sentences for each rate."""
    free = next((column for column in found if column.rate is None), None)
    made = {column.rate: rows(column, free, document["run"]["ranks"]) for column in found}
    if free and len(found) > 1:
        yield summary(made)
        yield ""
    for column in found:
        yield title(column, free, document)
        yield at_rate(made[column.rate])
        yield ""
        yield from sentences(column)
        yield ""


def summary(made: dict[str | None, list[Row]]) -> Table:
    """Speeds at all rates, and how much of them the link makes."""
    table = Table(title="speed over the baseline's, and what of it is due to the link (95 % CI)", box=None, pad_edge=False)
    table.add_column("scheme")
    for rate in made:
        table.add_column(rate or "no limit", justify="right")
        if rate:
            table.add_column("by the link", justify="right")
    for at in zip(*made.values(), strict=True):
        cells = []
        for rate, row in zip(made, at, strict=True):
            first = row.scheme == "baseline"
            cells.append("1" if first else shown(row.speed, 2))
            if rate:
                cells.append("-" if first or row.link is None else shown(row.link, 2))
        table.add_row(at[0].scheme, *cells)
    return table


def title(column: Column, free: Column | None, document: dict[str, Any]) -> str:
    """Rate and share of a table."""
    if column.rate is None:
        return "no limit: what the codecs cost and spare the processors"
    share = share_of_link(column, free) if free else None
    words = f"{column.where}"
    if share:
        low, high = share.low, share.high
        between = f" ({low:.0%} to {high:.0%})" if low is not None and high is not None else ""
        words += f": the limit costs the baseline {share.estimate:.0%}{between} of its time"
        if asked := document["asked"]["shares"]:
            words += f"; {asked[document['rates'].index(column.rate)]:.0f}% was asked for"
    return words


def at_rate(own: list[Row]) -> Table:
    """Every scheme at one rate."""
    table = Table(box=None, pad_edge=False)
    table.add_column("scheme")
    heads = ("samples/s", "speed (95 % CI)", "by the link", "by bytes", "wire", "exposed, hidden", "loss (95 % CI)")
    for head in heads:
        table.add_column(head, justify="right")
    for row in own:
        first = row.scheme == "baseline"
        mark = " *" if row.scheme in KNOWN_WORSE else ""
        table.add_row(
            row.scheme + mark,
            f"{row.samples_per_s:.1f}",
            "-" if first else shown(row.speed, 2),
            "-" if first or row.link is None else shown(row.link, 2),
            "-" if row.ideal is None else f"{row.ideal:.2f}",
            "-" if row.wire is None else f"{row.wire:.3f}",
            f"{row.exposed_s * 1e3:.0f}, {row.hidden_s * 1e3:.0f} ms",
            "-" if first else shown(row.loss, 4, "+") + mark,
        )
    return table


def notes(document: dict[str, Any]) -> list[str]:
    """What the columns mean."""
    return [*LEGEND.splitlines(), *loss_note(document["run"]["train"]["steps"], document["schemes"])]
