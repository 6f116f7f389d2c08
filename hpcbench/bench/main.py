"""``hpcbench bench``: from options to a table and files. NumPy and the kernels are imported when they are used."""

import difflib
from pathlib import Path

from rich.console import Console

from hpcbench.console import columns
from hpcbench.errors import UserError

DEFAULT_MIB = 64.0
"""More than a core's share of most caches."""


def bench_codecs(
    names: list[str],
    *,
    data: str = "gradient",
    type: str = "float32",
    mib: float = DEFAULT_MIB,
    repeats: int = 5,
    isa: str | None = None,
    device: str = "cpu",
    json: Path | None = None,
    csv: Path | None = None,
    plot: Path | None = None,
) -> int:
    """Measure codecs and print the table.

    Parameters
    ----------
    names
        Codecs as in a study; none for a selection of all families.
    data
        A data set by name, or a file with values.
    type
        ``float32``, ``float16`` or ``bfloat16``.
    mib
        MiB of values; of a file so much from its beginning.
    repeats
        Turns that count.
    isa
        Build of the kernels; None for the fastest that runs here.
    device
        ``cpu`` or ``gpu``.
    json, csv, plot
        Files to write beside.

    Returns
    -------
    int
        0, or 1 when a codec's error is above its own bound.

    Raises
    ------
    UserError
        An option is wrong, or something it needs is not installed.
    """
    for option, path in (("--json", json), ("--csv", csv), ("--plot", plot)):
        _check_output(option, path)
    if repeats < 1:
        raise UserError(f"--repeats {repeats}: must be at least 1")
    if not 0 < mib <= 2**20:
        raise UserError(f"--mib {mib:g}: must be above 0 and at most {2**20}")
    _choice("--device", device, ("cpu", "gpu"))
    try:
        from hpcbench.bench import codecs, table
        from hpcbench.bench import data as data_sets
        from hpcbench.bench.device import open_device
        from hpcbench.bench.machine import machine
        from hpcbench.bench.progress import progress
    except ModuleNotFoundError as error:
        raise UserError(f"bench codecs: needs {error.name}: pip install 'hpcbench[bench]'") from None
    _choice("--type", type, tuple(data_sets.TYPES))
    if plot is not None:
        from hpcbench.bench.plot import draw

    dtype = data_sets.TYPES[type]
    where = open_device(device, isa)
    x = data_sets.load(data, max(1, int(mib * 2**20) // dtype.itemsize), dtype)
    chosen = names or [name for name in codecs.DEFAULT if where.has(name)]
    with progress() as show:
        result = codecs.measure(chosen, x, where, repeats, show)

    title = f"{data}, {x.nbytes / 2**20:.4g} MiB of {type}; {where.description}"
    table.render(
        result, f"{title}; GB/s of values, best of {repeats} (median)", Console(width=columns(), highlight=False)
    )
    if not names and len(chosen) < len(codecs.DEFAULT):
        print(f"Not on this device: {', '.join(name for name in codecs.DEFAULT if name not in chosen)}")
    settings = {
        "data": data,
        "type": type,
        "values": x.size,
        "bytes": x.nbytes,
        "repeats": repeats,
        "device": where.description,
        "instruction_set": where.instruction_set,
    }
    if json is not None:
        _save("--json", json, table.as_json(result, machine(), settings))
    if csv is not None:
        _save("--csv", csv, table.as_csv(result))
    if plot is not None:
        draw(result, title, plot)
    return int(any(row.broken for row in result.rows))


def _choice(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise UserError(f"{option} {value}: not known: use one of {', '.join(known)}{hint}")


def _check_output(option: str, path: Path | None) -> None:
    """Refuse before the measurement what could not be written after it."""
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path}: is a directory: name a file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: {path.parent} is no directory: make it first")
    if option == "--plot" and path.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"--plot {path}: not known what to draw: name a file that ends in .png or .svg")


def _save(option: str, path: Path, words: str) -> None:
    try:
        path.write_text(words, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be written: {error.strerror}") from None
