"""Tables and sentences of one part, for the terminal and for a file."""

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from hpcbench.console import UNBOUND
from hpcbench.contract.training import Train
from throttled import curve
from throttled.compare import Column, Row, columns, rows, share_of_link
from throttled.words import KNOWN_WORSE, loss_note, sentences, shown

LEGEND = """\
speed: samples/s over the baseline's, a ratio over pairs of runs of one repeat, with Student's 95 % interval.
by the link: that ratio over the same ratio without a limit, paired by repeat: the processors' part falls out.
by bytes: what "by the link" would be if the limit cost the baseline only the bytes that the scheme sends.
wire: bytes between hosts, of those of the same algorithm without a codec (identity).
exposed, hidden: seconds of communication in a step that a rank waited for, and that passed while it computed."""


def render(document: dict[str, Any], head: Iterable[str]) -> str:
    """Return the complete output of the part as text."""
    text = io.StringIO()
    console = Console(file=text, width=UNBOUND, highlight=False)
    for line in (*head, ""):
        console.print(line, soft_wrap=True, markup=False)
    columns_of_rates = columns(document)
    along = curve.fits(columns_of_rates)
    body = curve.tables(columns_of_rates, document) if along else tables(columns_of_rates, document)
    for block in (*about(document, columns_of_rates), *body, *(curve.LEGEND if along else notes(document))):
        console.print(block, markup=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def about(document: dict[str, Any], columns_of_rates: list[Column]) -> list[str]:
    """Describe the runs."""
    run, train = document["run"], document["run"]["train"]
    repeats = len({run["repeat"] for run in document["runs"]})
    cores = "which share cores" if run["oversubscribe"] else "a core for each"
    batches = list(dict.fromkeys(column.cell.get(curve.BATCH, train["global_batch"]) for column in columns_of_rates))
    asked = document["asked"]["shares"]
    chosen = (
        f"taken so that links cost the baseline about {' and '.join(f'{share:.0f}' for share in asked)} % of its time"
        if asked
        else "given by name"
    )
    return [
        f"{document['part']}: {document['title']}",
        f"{run['model']['name']} in {train['precision']}, messages in {messages(train)}, ZeRO-{train['zero']}, "
        f"{run['ranks']} ranks, {cores}.",
        f"{train['steps'] - train['warmup_steps']} counted steps, of {', '.join(map(str, batches))} samples of "
        f"{train['seq_len']} tokens, after {train['warmup_steps']}; repeats: {repeats}, in rotated order.",
        f"The rates are a choice: {chosen}. A gain holds for such a share of time only.",
        "",
    ]


def messages(train: dict[str, Any]) -> str:
    """Return the number format of messages, or all formats if they differ."""
    formats = Train.model_validate(train).message_formats
    alike = len(set(formats.values())) == 1
    return formats["gradients"] if alike else ", ".join(f"{name} ({what})" for what, name in formats.items())


def tables(columns_of_rates: list[Column], document: dict[str, Any]) -> Iterable[Any]:
    """Yield the summary, and a table with sentences for each rate."""
    free = next((column for column in columns_of_rates if column.rate is None), None)
    rows_of_rates = {column.rate: rows(column, free, document["run"]["ranks"]) for column in columns_of_rates}
    if free and len(columns_of_rates) > 1:
        yield "speed over the baseline's, and what of it is due to the link (95 % CI)"
        yield summary(rows_of_rates)
        yield ""
    for column in columns_of_rates:
        yield title(column, free, document)
        yield at_rate(rows_of_rates[column.rate])
        yield ""
        yield from sentences(column)
        yield ""


def summary(rows_of_rates: dict[str | None, list[Row]]) -> Table:
    """Make the table of the speeds at all rates, and of the part of each speed that is due to the link."""
    table = Table(box=None, pad_edge=False)
    table.add_column("scheme")
    for rate in rows_of_rates:
        table.add_column(rate or "no limit", justify="right")
        if rate:
            table.add_column("by the link", justify="right")
    for at in zip(*rows_of_rates.values(), strict=True):
        cells = []
        for rate, row in zip(rows_of_rates, at, strict=True):
            first = row.scheme == "baseline"
            cells.append("1" if first else shown(row.speed, 2))
            if rate:
                cells.append("-" if first or row.link is None else shown(row.link, 2))
        table.add_row(at[0].scheme, *cells)
    return table


def title(column: Column, free: Column | None, document: dict[str, Any]) -> str:
    """Format the rate and cost of a table."""
    if column.rate is None:
        return "no limit: what the codecs cost and spare the processors"
    share = share_of_link(column, free) if free else None
    limit_text = f"links of {column.rate}"
    if share:
        low, high = share.low, share.high
        between = f" ({low:.0%} to {high:.0%})" if low is not None and high is not None else ""
        limit_text += f": the limit costs the baseline {share.estimate:.0%}{between} of its time"
        if asked := document["asked"]["shares"]:
            limit_text += f"; {asked[document['rates'].index(column.rate)]:.0f}% was asked for"
    return limit_text


def at_rate(rows_of_rate: list[Row]) -> Table:
    """Make the table of all schemes at one rate."""
    table = Table(box=None, pad_edge=False)
    table.add_column("scheme")
    heads = ("samples/s", "speed (95 % CI)", "by the link", "by bytes", "wire", "exposed, hidden", "loss (95 % CI)")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows_of_rate:
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
    """Explain the columns."""
    return [*LEGEND.splitlines(), *loss_note(document["run"]["train"]["steps"], document["schemes"])]
