"""Tables of micro-benchmarks: all results of one, or several files of the same benchmark side by side."""

from collections.abc import Callable, Iterator, Sequence

from hpcbench.collect.microbenchmarks import Microbenchmark, Size
from hpcbench.contract.text import printable
from hpcbench.report.document import Column, Entry, Field, Table, tabulate
from hpcbench.report.notation import NAMES, Unit, ratio

_MAIN = ("bus_bytes_per_s", "seconds", "bytes_per_s", "seconds_overall", "messages_per_s")
"""Quantities that several tables are compared by. The first one that all tables have is used."""
_UNITS = {
    "seconds": Unit(1e-6, "us"),
    "bytes_per_s": Unit(1e9, "GB/s"),
    "messages_per_s": Unit(1.0, "1/s"),
    "overlap": Unit(1e-2, "%"),
    "iterations": Unit(1.0, ""),
}
_WRONG = Column("wrong", "wrong", help="Elements that came out wrong, or 1 for a validation that failed.")


def microbenchmarks(found: Sequence[Microbenchmark]) -> Iterator[Table]:
    """A table for each benchmark.

    If several files have the same benchmark, each size is compared with that of the first file.
    """
    groups: dict[tuple[str, str], list[Microbenchmark]] = {}
    for one in found:
        groups.setdefault((one.tool, one.name), []).append(one)
    for group in groups.values():
        table = _table(group)
        if table is not None:
            yield table


def _table(group: Sequence[Microbenchmark]) -> Table | None:
    first = group[0]
    # Of a size that was measured twice the last counts: the first warms up caches in many a script.
    figures = [{size.bytes: size for size in one.sizes} for one in group]
    fields: list[Field[int | None]] = [(Column("bytes", "size (B)"), _bytes)]
    if len(group) == 1:
        fields += [(Column(key, _head(key)), _figure(first, figures[0], key)) for key in first.quantities]
    elif key := next((key for key in _MAIN if all(key in one.quantities for one in group)), None):
        for i, (one, own) in enumerate(zip(group, figures, strict=True)):
            head = f"{printable(one.path.stem, NAMES)}: {_head(key)}"
            fields.append((Column(f"{key}_{i}", head, group=i), _figure(one, own, key)))
            if i:
                over = Column(f"ratio_{i}", f"over {printable(first.path.stem, NAMES)}", group=i)
                fields.append((over, _over(own, figures[0], key)))
    fields.append((_WRONG, lambda size: _wrong([own[size] for own in figures if size in own])))
    version = f" {first.version}" if first.version else ""
    return tabulate(
        "microbenchmark",
        printable(f"{first.tool}{version}: {first.name or 'a benchmark without a name'}"),
        list(dict.fromkeys(size for own in figures for size in own)),
        fields,
        notes=[f"read from {printable(str(one.path))}:{one.line}" for one in group],
    )


def _bytes(size: int | None) -> Entry:
    return Entry() if size is None else Entry(f"{size}", size)


def _figure(one: Microbenchmark, own: dict[int | None, Size], key: str) -> Callable[[int | None], Entry]:
    def entry(size: int | None) -> Entry:
        value = own[size].values.get(key) if size in own else None
        if value is None:
            return Entry()
        shown = f"{value:.0f}" if key == "iterations" else _unit(key).show(value)
        return Entry(shown, value, source=f"{one.path}:{own[size].line}")

    return entry


def _over(own: dict[int | None, Size], base: dict[int | None, Size], key: str) -> Callable[[int | None], Entry]:
    def entry(size: int | None) -> Entry:
        mine, other = (side[size].values.get(key) if size in side else None for side in (own, base))
        value = mine / other if mine is not None and other else None
        return Entry(ratio(value), value)

    return entry


def _wrong(sizes: Sequence[Size]) -> Entry:
    wrong = sum(size.wrong or 0 for size in sizes)
    return Entry(f"{wrong}", wrong, "bad") if wrong else Entry()


def _unit(key: str) -> Unit:
    return next(unit for name, unit in _UNITS.items() if name in key)


def _head(key: str) -> str:
    bare = key.removesuffix("_in_place")
    name = next(name for name in _UNITS if name in bare)
    words = {"seconds": "time", "bytes_per_s": "bandwidth"}.get(name, name.removesuffix("_per_s"))
    rest = bare.replace(name, "").replace("_", " ").strip()
    unit, place = _UNITS[name].name, "" if bare == key else "in place"
    return " ".join(filter(None, (rest, words, place, f"({unit})" if unit else "")))
