"""Micro-benchmark tables: all results of a single file, or one quantity compared between files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpcbench.collect.microbenchmarks import Microbenchmark, TableRow
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Entry, Field, Table, tabulate
from hpcbench.present.notation import NAMES, DisplayUnit, quantity, ratio

_MAIN = ("bus_bytes_per_s", "seconds", "bytes_per_s", "seconds_overall", "messages_per_s")
"""Quantities for comparing tables, in order of preference. The first quantity that all tables contain is used."""
_UNITS = {
    "seconds": DisplayUnit(1e-6, "us"),
    "bytes_per_s": DisplayUnit(1e9, "GB/s"),
    "messages_per_s": DisplayUnit(1.0, "1/s"),
    "overlap": DisplayUnit(1e-2, "%"),
    "variation": DisplayUnit(1e-2, "%"),
    "iterations": DisplayUnit(1.0, ""),
}
_WRONG = Column("wrong", "wrong", help="Number of wrong elements, or 1 if a validation failed.")
Key = tuple[int | None, str, str, str]
"""Size, dtype, reduction and root of a row."""
_LABELS = (("datatype", "type"), ("operation", "reduction"), ("root", "root"))


def tabulate_microbenchmarks(tables: Sequence[Microbenchmark]) -> Iterator[Table]:
    """Yield one table per benchmark.

    If several files contain the same benchmark, each row is compared with the row of the first file. Unnamed benchmarks
    are not compared.
    """
    groups: dict[tuple[object, ...], list[_Measured]] = {}
    for table in tables:
        nameless = () if table.name else (table.path, table.line)
        group = groups.setdefault((table.tool, table.name, *nameless), [])
        partner = next((measured for measured in group if measured.takes(table)), None)
        if partner is None:
            group.append(_Measured([table]))
        else:
            partner.tables.append(table)
    for group in groups.values():
        key = next((key for key in _MAIN if all(key in measured.quantities for measured in group)), None)
        for part in [group] if key is not None else [[measured] for measured in group]:
            if shown := _make_table(part, key):
                yield shown


@dataclass
class _Measured:
    """Merged tables of a file, which have the same quantities but different rows."""

    tables: list[Microbenchmark]

    def takes(self, other: Microbenchmark) -> bool:
        """Return whether a table of the same benchmark can be merged with the tables."""
        first = self.tables[0]
        same = (first.path, first.version, first.quantities) == (other.path, other.version, other.quantities)
        return same and self.rows.keys().isdisjoint(size.key for size in other.sizes)

    @property
    def path(self) -> Path:
        """File of the tables."""
        return self.tables[0].path

    @property
    def quantities(self) -> tuple[str, ...]:
        """Quantities of the tables."""
        return self.tables[0].quantities

    @property
    def rows(self) -> dict[Key, TableRow]:
        """Rows by key.

        For repeated rows, the last measurement is used, because earlier measurements often warm up caches.
        """
        return {size.key: size for table in self.tables for size in table.sizes}

    def wrong(self, key: Key) -> int:
        """Count the wrong elements of a row over all measurements."""
        return sum(size.wrong or 0 for table in self.tables for size in table.sizes if size.key == key)

    def notes(self) -> Iterator[str]:
        """Yield sentences about the tables."""
        for table in self.tables:
            place = f"{make_printable(str(table.path))}:{table.line}"
            yield f"read from {place}"
            yield from (f"{place}: {make_printable(remark)}" for remark in table.remarks)
            if table.failed and not any(size.wrong for size in table.sizes):
                yield f"{place}: the benchmark reports a failed check"
            if not table.name:
                yield (
                    f"{place}: the file does not name this benchmark, so its table is not compared with others: "
                    "to name the benchmark, write the line `# Collective test starting: NAME` above the table"
                )


def _make_table(group: Sequence[_Measured], key: str | None) -> Table | None:
    first = group[0].tables[0]
    rows = [measured.rows for measured in group]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    fields: list[Field[Key]] = [(Column("bytes", "size (B)"), lambda key: quantity(key[0], str))]
    for i, (name, head) in enumerate(_LABELS, 1):
        if len({key[i] for key in keys}) > 1:
            fields.append((Column(name, head, text=True), partial(_make_label, i)))
    fixed = len(fields)
    if len(group) == 1:
        fields += [
            (Column(name, _write_head(name)), _make_figure(rows[0], name, first.path)) for name in first.quantities
        ]
    elif key is not None:
        names = _name_files(group)
        for i, (measured, row, name) in enumerate(zip(group, rows, names, strict=True)):
            fields.append(
                (Column(f"{key}_{i}", f"{name}: {_write_head(key)}", group=i), _make_figure(row, key, measured.path))
            )
            if i:
                fields.append((Column(f"ratio_{i}", f"over {names[0]}", group=i), _make_ratio(row, rows[0], key)))
    fields.append((_WRONG, lambda key: _show_wrong(sum(measured.wrong(key) for measured in group))))
    version = f" {first.version}" if first.version else ""
    kinds = [str(kind) for i in (1, 2) if len(same := {key[i] for key in keys}) == 1 for kind in same if kind]
    name = first.name or f"a benchmark without a name ({first.path.stem})"
    return tabulate(
        "microbenchmark",
        make_printable(f"{first.tool}{version}: {', '.join([name, *kinds])}"),
        keys,
        fields,
        notes=[note for measured in group for note in measured.notes()],
        always=fixed,
    )


def _name_files(group: Sequence[_Measured]) -> list[str]:
    """Return a name for each file, with the line number of the table's heading if the file has several tables."""
    stems = [measured.path.stem for measured in group]
    lines = [f":{measured.tables[0].line}" if stems.count(measured.path.stem) > 1 else "" for measured in group]
    return [f"{make_printable(stem, NAMES)}{line}" for stem, line in zip(stems, lines, strict=True)]


def _make_label(place: int, key: Key) -> Entry:
    label = str(key[place] or "")
    return Entry(label, label) if label else Entry()


def _make_figure(rows: Mapping[Key, TableRow], name: str, path: Path) -> Callable[[Key], Entry]:
    def entry(key: Key) -> Entry:
        value = rows[key].values.get(name) if key in rows else None
        if value is None:
            return Entry()
        shown = f"{value:.0f}" if name == "iterations" else _find_unit(name).show(value)
        return Entry(shown, value, source=f"{path}:{rows[key].line}")

    return entry


def _make_ratio(rows: Mapping[Key, TableRow], base: Mapping[Key, TableRow], name: str) -> Callable[[Key], Entry]:
    def entry(key: Key) -> Entry:
        mine, other = (side[key].values.get(name) if key in side else None for side in (rows, base))
        value = mine / other if mine is not None and other else None
        return Entry(ratio(value), value)

    return entry


def _show_wrong(wrong: int) -> Entry:
    return Entry(f"{wrong}", wrong, "bad") if wrong else Entry()


def _find_unit(key: str) -> DisplayUnit:
    return next(unit for name, unit in _UNITS.items() if name in key)


def _write_head(key: str) -> str:
    bare = key.removesuffix("_in_place")
    name = next(name for name in _UNITS if name in bare)
    noun = {"seconds": "time", "bytes_per_s": "bandwidth"}.get(name, name.removesuffix("_per_s"))
    other = bare.replace(name, "").replace("_", " ").strip()
    unit, place = _UNITS[name].name, "" if bare == key else "in place"
    return " ".join(filter(None, (other, noun, place, f"({unit})" if unit else "")))
