"""What was measured on a machine, as the model takes it: tables that ``hpcbench bench`` left in a directory.

``gemm.json`` is of `hpcbench bench gemm`, ``network.json`` of `hpcbench bench network --json`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict.basis import Basis
from hpcbench.predict.fabric import ROUNDS, Fabric, Place
from hpcbench.predict.machine import Machine
from hpcbench.predict.products import Point, Products
from hpcbench.predict.traffic import CodecSpeed

SCHEMA = 1
PRODUCTS, NETWORK = "gemm.json", "network.json"


@dataclass(frozen=True)
class Measured:
    """Tables of one directory."""

    directory: Path | None = None
    products: dict[str, Any] | None = None
    network: dict[str, Any] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the files that were found."""
        found = ((PRODUCTS, self.products), (NETWORK, self.network))
        return [name for name, table in found if table is not None]


def read(directory: Path | None, *, asked_for: bool = False) -> Measured:
    """The tables of a directory; nothing where there is none.

    Raises
    ------
    UserError
        What was asked for is no directory, or a table is not what it should be.
    """
    if directory is None or not directory.is_dir():
        if asked_for:
            raise UserError(f"--measured {directory}: is no directory: write one with `hpcbench bench gemm`")
        return Measured()
    products, network = (_table(directory / name) for name in (PRODUCTS, NETWORK))
    return Measured(directory, products, network)


def _table(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}: measure again with `hpcbench bench`") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise UserError(f"{path}: is of another version: measure again with `hpcbench bench`")
    return raw


def improve(machine: Machine, measured: Measured, precision: str) -> tuple[Machine, dict[str, CodecSpeed]]:
    """The machine with what was measured on it in place of what was assumed, and the speeds of codecs.

    Raises
    ------
    UserError
        A table lacks something.
    """
    try:
        if measured.products:
            machine = _with_products(machine, measured.products, precision)
        speeds: dict[str, CodecSpeed] = {}
        if measured.network:
            machine, speeds = _with_network(machine, measured.network)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{measured.directory}: a table lacks {error}: measure again with `hpcbench bench gemm` and `network`"
        ) from None
    return machine, speeds


def _with_products(machine: Machine, raw: dict[str, Any], precision: str) -> Machine:
    rows = [row for row in raw["products"] if row["precision"] == precision]
    if not rows:
        return machine
    rates = [2.0 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in rows]
    # shares of the fastest product: what a CPU could do at most, nobody says
    peak = max(rates)
    device = replace(machine.device, tflops={**machine.device.tflops, precision: peak / 1e12})
    points: dict[str, list[Point]] = {}
    for row, rate in zip(rows, rates, strict=True):
        points.setdefault(row["pass"], []).append(Point(row["m"], row["n"], row["k"], rate / peak))
    table = tuple((passage, tuple(found)) for passage, found in points.items())
    copies = [row["bytes"] / row["seconds"] for row in raw["memory"] if row["operation"] == "copy"]
    if copies:
        device = replace(device, copy_bytes_per_s=max(copies), basis=Basis.HERE)
    return replace(machine, device=device, products=Products(table, machine.products.units, Basis.HERE, raw["device"]))


def _with_network(machine: Machine, raw: dict[str, Any]) -> tuple[Machine, dict[str, CodecSpeed]]:
    fabric, within, between = machine.fabric, raw["within"], raw["between"]
    if within:
        fabric = replace(
            fabric,
            family="measured",
            within_bytes_per_s=within["bytes_per_s"] / 0.75,
            within_latency_s=within["latency_s"],
            within_basis=Basis.HERE,
        )
    if between:
        fabric = replace(
            fabric,
            node_bytes_per_s=between["bytes_per_s"],
            node_latency_s=between["latency_s"],
            share=1.0,
            between_basis=Basis.HERE,
        )
    ranks_per_node = raw.get("ranks_per_node") or []
    fabric = replace(fabric, library=_library(fabric, raw["native"], ranks_per_node))
    # on cores that ranks share all of them encoded at the same time, and the simulation reckons with that by itself
    alone = max(1.0, sum(ranks_per_node) / machine.shared_cores) if machine.shared_cores else 1.0
    speeds = {
        name: CodecSpeed(
            speed["encode_bytes_per_s"] * alone,
            speed["decode_bytes_per_s"] * alone,
            speed["call_s"] / alone,
            speed["ratio"],
            Basis.HERE,
        )
        for name, speed in raw["codecs"].items()
    }
    return replace(machine, fabric=fabric), speeds


def _library(
    fabric: Fabric, native: Sequence[tuple[str, int, float]], ranks_per_node: Sequence[int]
) -> tuple[tuple[str, float], ...]:
    """Measured over reckoned seconds of the library's collectives, each at its largest size.

    Empty if the table does not say on which nodes, or these differ.
    """
    if len(set(ranks_per_node)) != 1:
        return ()
    place, found = Place(len(ranks_per_node), ranks_per_node[0]), {}
    for operation, nbytes, seconds in sorted(native, key=lambda row: row[1]):
        reckoned = fabric.collective_seconds(operation, nbytes, place) if operation in ROUNDS else 0.0
        if reckoned:
            found[operation] = seconds / reckoned
    return tuple(found.items())
