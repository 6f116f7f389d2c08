"""Command ``hpcbench bench codecs``, from options to a table and files.

NumPy and the kernels are imported at first use.
"""

from collections.abc import Sequence
from pathlib import Path

from hpcbench.bench import options
from hpcbench.errors import UserError

DEFAULT_MIB = 64.0
"""Default data size in MiB, larger than a core's share of most caches."""


def bench_codecs(
    names: list[str],
    *,
    data: str = "gradient",
    type: str = "float32",
    mib: float = DEFAULT_MIB,
    repeats: int = 5,
    isa: str | None = None,
    device: str = "cpu",
    outputs: Sequence[Path] = (),
    plots: Path | None = None,
) -> int:
    """Measure codecs and print the table.

    Parameters
    ----------
    names
        Codec names, written as in a study. If empty, a selection from all families.
    data
        A data set by name, or a file with values.
    type
        ``float32``, ``float16`` or ``bfloat16``.
    mib
        Data size in MiB, read from the beginning of a file.
    repeats
        Number of timed repeats.
    isa
        Kernel build, or None for the fastest supported build.
    device
        ``cpu`` or ``gpu``.
    outputs
        Files to write.
    plots
        Directory to write the figure to.

    Returns
    -------
    int
        0, or 1 if a codec's error exceeds its bound.

    Raises
    ------
    UserError
        An option is wrong, or a package is missing.
    """
    options.check_outputs(outputs, plots)
    options.check_repeats(repeats)
    if not 0 < mib <= 2**20:
        raise UserError(f"--mib {mib:g}: must be above 0 and at most {2**20}")
    options.check_choice("--device", device, ("cpu", "gpu"))
    try:
        from hpcbench.bench import codecs, table
        from hpcbench.bench import data as data_sets
        from hpcbench.bench.device import open_device
        from hpcbench.bench.machine import describe_machine
        from hpcbench.bench.progress import progress
    except ModuleNotFoundError as error:
        raise UserError(f"bench codecs: needs {error.name}. Install it with `pip install {error.name}`") from None
    options.check_choice("--type", type, tuple(data_sets.TYPES))

    dtype = data_sets.TYPES[type]
    where = open_device(device, isa)
    x = data_sets.load_values(data, max(1, int(mib * 2**20) // dtype.itemsize), dtype)
    chosen = names or [name for name in codecs.DEFAULT if where.has(name)]
    with progress() as show:
        result = codecs.measure(chosen, x, where, repeats, show)

    settings = {
        "data": data,
        "type": type,
        "values": x.size,
        "bytes": x.nbytes,
        "repeats": repeats,
        "device": where.description,
        "instruction_set": where.instruction_set,
    }
    title = f"{data}, {x.nbytes / 2**20:.4g} MiB of {type}; {where.description}"
    left_out = () if names else [name for name in codecs.DEFAULT if name not in chosen]
    results = table.CodecResults(result, title, describe_machine(), settings, left_out)
    results.show()
    results.save(outputs, plots)
    return int(any(row.broken for row in result.rows))
