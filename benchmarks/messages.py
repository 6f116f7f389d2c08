"""Measure codecs on sampled messages, by channel and step: ratio, error, and rank of the matrices.

    python benchmarks/messages.py DIR [--codecs NAME ...] [--tiny]

DIR is the directory of a run or of one or more submissions whose study has `train.keep_messages`. Numbers are medians
over messages or matrices. Errors are relative RMS errors of one encoding of a message. `rank` is the effective rank of
a matrix (Roy and Vetterli, EUSIPCO 2007), divided by the effective rank of a Gaussian matrix of the same shape.
Requires hpcbench[bench].
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench import options
from hpcbench.bench.fidelity import compute_errors
from hpcbench.bench.table import error
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.console import columns
from hpcbench.contract import message_samples
from hpcbench.contract.message_samples import SampledMessage
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.text import make_printable
from hpcbench.contract.traffic import find_content
from hpcbench.contract.values import get_text
from hpcbench.errors import UserError
from hpcbench.files import read_json

CODECS = ("bf16", "int8:256", "zfp:8", "zfp:16", "mpc", "xpk", "topk:0.01")
"""Codecs of the paper, and the plain codecs for comparison."""
SMALLEST, LONGEST = 8, 1024
"""Smallest dim for which the rank of a matrix is computed, and largest dim without subsampling of rows or columns."""

OF_DIFFERENCES = " of differences"
"""Suffix of the operation if a message contains the changes of weights since the previous message."""


class Key(NamedTuple):
    """Key of a table row: the properties that all messages of the row share."""

    run: str
    channel: str
    operation: str
    dtype: str
    step: int


@dataclass(frozen=True)
class Coded:
    """Result of a codec on a message."""

    ratio: float
    """Uncompressed bytes divided by compressed bytes."""
    relative_rmse: float
    exact: bool
    """Whether the decoded values are bitwise identical."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one message."""

    nbytes: int
    zeros: float
    """Fraction of values that are zero."""
    ranks: list[float]
    """Effective rank of each matrix, relative to a Gaussian matrix."""
    coded: dict[str, Coded]
    """Results of the codecs that support the dtype of the values."""


def encode(name: str, x: Array) -> Coded | None:
    """Encode and decode values of shape (n,). Return None if the codec does not support the dtype of the values."""
    codec = get_codec(name)
    try:
        wire = np.empty(codec.wire_bytes(x.size, x.dtype), np.uint8)
    except TypeError:
        return None
    decoded = np.full_like(x, np.nan)
    with np.errstate(all="ignore"):
        used = codec.encode(x, wire)
        codec.decode(wire[:used], decoded)
        rmse = compute_errors(x, decoded).relative_rmse
    exact = np.array_equal(x.view(np.uint8), decoded.view(np.uint8))
    return Coded(x.nbytes / used if used else math.inf, rmse, exact)


def effective_rank(matrix: Array) -> float:
    """Return the effective rank of a nonzero matrix: the exponential of the entropy of its singular values."""
    singular = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    shares = singular[singular > 0] / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@cache
def gaussian_rank(rows: int, cols: int) -> float:
    """Return the effective rank of a Gaussian matrix, which is the same matrix at each call."""
    return effective_rank(np.random.default_rng((rows, cols)).standard_normal((rows, cols)))


def matrices(message: SampledMessage, values: Array) -> Iterator[Array]:
    """Yield the matrices in the sampled values. All dims of a tensor except the last are treated as rows."""
    for part in message.parts:
        *outer, cols = part.shape
        if outer and cols >= SMALLEST:
            rows = min(math.prod(outer), max(values.size - part.begin, 0) // cols)
            if rows >= SMALLEST:
                yield values[part.begin : part.begin + rows * cols].reshape(rows, cols)


def relative_ranks(message: SampledMessage, values: Array) -> Iterator[float]:
    """Yield the effective rank of each finite, nonzero matrix, relative to a Gaussian matrix."""
    for matrix in matrices(message, values):
        picked = [np.linspace(0, n - 1, min(n, LONGEST)).round().astype(np.int64) for n in matrix.shape]
        sample = matrix[np.ix_(*picked)].astype(np.float64)
        if np.isfinite(sample).all() and sample.any():
            yield effective_rank(sample) / gaussian_rank(*sorted(sample.shape))


def measure(message: SampledMessage, codecs: Sequence[str]) -> Measured:
    """Measure one message that contains values."""
    x: Array = np.frombuffer(message.values, BFLOAT16 if message.dtype == "bfloat16" else message.dtype)
    results = {name: coded for name in codecs if (coded := encode(name, x)) is not None}
    return Measured(x.nbytes, float(np.mean(x == 0)), list(relative_ranks(message, x)), results)


def read_samples(path: Path) -> Iterator[tuple[Key, SampledMessage]]:
    """Yield the sampled messages below a directory.

    Raises
    ------
    UserError
        The directory contains no samples, or a file is damaged.
    """
    files = sorted(path.rglob(f"{message_samples.DIRECTORY}/{message_samples.name_file('*', '*')}"))
    if not files:
        remedy = "submit a study with `train: {keep_messages: {steps: [20, 60], each: 2}}`, then give its directory"
        raise UserError(f"{make_printable(str(path))}: no run in it has sampled messages: {remedy}")
    for file in files:
        directory = file.parent.parent
        run = read_json(directory / "run.json") or {}
        name = make_printable(
            f"{get_text(run, 'study') or ''} {get_text(run, 'scheme', 'name') or directory.name}".strip(), 60
        )
        scheme = NamedScheme.model_validate(run["scheme"]) if get_text(run, "scheme", "algorithm") else None
        step = message_samples.read_samples(file)
        for message in step.messages:
            if message.values:
                traffic = tuple(message.channel.split())
                differs = scheme is not None and scheme.treatment(traffic, step=step.step).differences
                operation = message.operation + (OF_DIFFERENCES if differs else "")
                yield Key(name, message.channel, operation, message.dtype, step.step), message


def ranks_by_content(rows: dict[Key, list[Measured]]) -> dict[str, list[float]]:
    """Return the relative ranks of the matrices for each kind of message content.

    Keys and values that ranks of a context group exchange (CP) are excluded, because their rows contain the features of
    a single head.
    """
    contents: dict[str, list[float]] = {"gradients": [], "activations": [], "gradients of activations": []}
    for key, messages in rows.items():
        traffic = tuple(key.channel.split())
        content, kind = find_content(traffic), traffic[2]
        if content == "gradients" and kind == "GRAD":
            contents["gradients"] += [rank for message in messages for rank in message.ranks]
        elif content == "activations" and traffic[0] != "CP":
            name = "activations" if kind == "ACT" else "gradients of activations"
            contents[name] += [rank for message in messages for rank in message.ranks]
    return contents


def render(rows: dict[Key, list[Measured]], codecs: Sequence[str]) -> Table:
    """Return the table, with a row for each channel and step."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "channel", "operation", "type"):
        table.add_column(heading)
    for heading in ("step", "messages", "MB", "zeros", "rank", *codecs):
        table.add_column(heading, justify="right")
    for key, messages in rows.items():
        ranks = [rank for message in messages for rank in message.ranks]
        table.add_row(
            *(str(cell) for cell in key),
            str(len(messages)),
            f"{sum(message.nbytes for message in messages) / 1e6:.2f}",
            f"{median(message.zeros for message in messages):.1%}",
            f"{median(ranks):.2f}" if ranks else "-",
            *(cell([message.coded[name] for message in messages if name in message.coded]) for name in codecs),
        )
    return table


def cell(results: Sequence[Coded]) -> str:
    """Return ratio and error of a codec as text."""
    if not results:
        return "-"
    exact = all(result.exact for result in results)
    rmse = "exact" if exact else error(median(result.relative_rmse for result in results))
    return f"{median(result.ratio for result in results):.2f} {rmse}"


def lossy(rows: dict[Key, list[Measured]], codecs: Sequence[str]) -> list[str]:
    """Return the lossless codecs that did not reproduce every bit."""
    results = [message.coded for messages in rows.values() for message in messages]
    return [name for name in codecs if not all(coded[name].exact for coded in results if name in coded)]


def main() -> int:
    """Measure, print, and return the exit status, which is 1 if a lossless codec changed a value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--codecs", nargs="+", default=CODECS, help="names as in a study")
    arguments = parse(parser, codecs=["int8:256", "xpk"])
    codecs = tuple(dict.fromkeys(arguments.codecs))
    rows: dict[Key, list[Measured]] = defaultdict(list)
    try:
        options.check_codecs(codecs)
        for key, message in read_samples(arguments.directory):
            rows[key].append(measure(message, codecs))
    except UserError as fault:
        print(f"messages: {fault}", file=sys.stderr)
        return 2
    rows = dict(sorted(rows.items()))
    print(*head(Path(__file__), ["numpy"]), sep="\n")
    console = Console(width=max(columns(), 220), highlight=False)
    console.print(render(rows, codecs))
    for content, ranks in ranks_by_content(rows).items():
        if ranks:
            console.print(
                f"effective rank of {content}: {median(ranks):.2f} of a Gaussian one's ({len(ranks)} matrices)"
            )
    defects = lossy(rows, [name for name in codecs if get_codec(name).lossless])
    for name in defects:
        print(f"{name}: does not give every bit back: a defect of the codec")
    return int(bool(defects))


if __name__ == "__main__":
    sys.exit(main())
