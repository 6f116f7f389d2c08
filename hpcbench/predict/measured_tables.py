"""Machine measurements as model inputs, read from a directory of tables written by ``hpcbench bench``.

``gemm.json`` comes from `hpcbench bench gemm`, ``network.json`` from `hpcbench bench network --output`. If ranks share
cores, ``cores.json`` comes from the same command on links without a bandwidth limit. On a single node, ``network.json``
is used instead.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.errors import UserError
from hpcbench.predict import core_costs
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.fabric import ROUNDS, Fabric, GroupPlacement
from hpcbench.predict.layers import MeasuredLayer
from hpcbench.predict.machine import Machine
from hpcbench.predict.products import MeasuredProduct, Products
from hpcbench.predict.program import ENGINE
from hpcbench.predict.work import ComputeCosts
from hpcbench.predict.workload import make_train

SCHEMA = 1
PRODUCTS, NETWORK, CORES = "gemm.json", "network.json", "cores.json"


@dataclass(frozen=True)
class MeasuredTables:
    """Tables of one directory."""

    directory: Path | None = None
    products: dict[str, Any] | None = None
    network: dict[str, Any] | None = None
    cores: dict[str, Any] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the existing table files."""
        tables = ((PRODUCTS, self.products), (NETWORK, self.network), (CORES, self.cores))
        return [name for name, table in tables if table is not None]


def read_tables(directory: Path | None, *, asked_for: bool = False) -> MeasuredTables:
    """Read the tables of a directory. Return no tables if the directory does not exist.

    Parameters
    ----------
    asked_for
        Whether the user specified the directory, so that it must exist.

    Raises
    ------
    UserError
        The specified directory does not exist, or a table is invalid.
    """
    if directory is None or not directory.is_dir():
        if asked_for:
            raise UserError(f"--measured {directory}: is not a directory: create the tables with `hpcbench bench gemm`")
        return MeasuredTables()
    products, network, cores = (_read_table(directory / name) for name in (PRODUCTS, NETWORK, CORES))
    return MeasuredTables(directory, products, network, cores)


def _read_table(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}: measure again with `hpcbench bench`") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise UserError(f"{path}: was written by another version: measure again with `hpcbench bench`")
    return raw


def apply_tables(machine: Machine, measured: MeasuredTables, precision: str) -> tuple[Machine, dict[str, CodecSpeed]]:
    """Return the machine with assumptions replaced by measurements, and the codec speeds.

    Raises
    ------
    UserError
        A field of a table is missing or invalid.
    """
    try:
        if measured.products:
            machine = _with_products(machine, measured.products, precision)
        speeds: dict[str, CodecSpeed] = {}
        if measured.network:
            machine, speeds = _with_network(machine, measured.network, measured.cores)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{measured.directory}: a table does not contain {error}: measure again with `hpcbench bench gemm` "
            "and `hpcbench bench network`"
        ) from None
    return machine, speeds


def _with_products(machine: Machine, raw: dict[str, Any], precision: str) -> Machine:
    rows = [row for row in raw["products"] if row["precision"] == precision]
    if not rows:
        return machine
    rates = [2.0 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in rows]
    # Efficiencies are relative to the fastest product, because the peak of a CPU is not specified.
    peak = max(rates)
    device = replace(machine.device, tflops={**machine.device.tflops, precision: peak / 1e12})
    points: dict[str, list[MeasuredProduct]] = {}
    for row, rate in zip(rows, rates, strict=True):
        points.setdefault(row["pass"], []).append(MeasuredProduct(row["m"], row["n"], row["k"], rate / peak))
    table = tuple((passage, tuple(measured)) for passage, measured in points.items())
    copies = [(row["bytes"], row["seconds"]) for row in raw["memory"] if row["operation"] == "copy"]
    if copies:
        nbytes, seconds = max(copies)  # the largest copy, which does not fit into a cache
        device = replace(device, copy_bytes_per_s=nbytes / seconds, basis=InputBasis.HERE)
    products = Products(table, machine.products.units, InputBasis.HERE, raw["device"])
    machine = replace(machine, device=device, products=products, update_s=raw.get("update_s"))
    return replace(machine, layers=_compute_factors(machine, raw.get("layers", []), precision))


def _compute_factors(machine: Machine, raw: Sequence[dict[str, Any]], precision: str) -> tuple[MeasuredLayer, ...]:
    """Return the ratio of each measured layer's time to the sum of its kernel times."""
    passes: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in raw:
        if row["precision"] == precision:
            how = row.get("tp", 1), row.get("sequence_parallel", False)
            key = row["positions"], row["hidden"], row["heads"], row["micro_batch"], row["seq_len"], *how
            passes.setdefault(key, {})[row["pass"]] = row["seconds"]
    layers = []
    for (positions, hidden, heads, micro_batch, seq_len, ways, spread), seconds in passes.items():
        model = Model(layers=1, hidden=hidden, heads=heads, positions="rotary" if positions == "rotary" else "learned")
        train = make_train(
            global_batch=micro_batch,
            micro_batch=micro_batch,
            seq_len=seq_len,
            precision=precision,
            sequence_parallel=spread,
        )
        modeled = ComputeCosts(machine, model, train, Layout(tp=ways), ENGINE).layer
        factors = seconds["forward"] / modeled.forward.total, seconds["backward"] / modeled.backward.total
        layers.append(MeasuredLayer(positions, hidden, micro_batch * seq_len, *factors, ways, spread))
    return tuple(layers)


def _with_network(
    machine: Machine, raw: dict[str, Any], free: dict[str, Any] | None
) -> tuple[Machine, dict[str, CodecSpeed]]:
    """Return the machine and codecs with the measurements in the link tables `raw` and `free` (for unlimited links)."""
    fabric, within, between = machine.fabric, raw["within"], raw["between"]
    if within:
        fabric = replace(
            fabric,
            family="measured",
            within_bytes_per_s=within["bytes_per_s"] / 0.75,
            within_latency_s=within["latency_s"],
            within_basis=InputBasis.HERE,
        )
    if between:
        fabric = replace(
            fabric,
            node_bytes_per_s=between["bytes_per_s"],
            node_latency_s=between["latency_s"],
            share=1.0,
            between_basis=InputBasis.HERE,
        )
    ranks_per_node = raw.get("ranks_per_node") or []
    if len(set(ranks_per_node)) == 1:  # Otherwise the placement is uneven or unknown.
        place = GroupPlacement(len(ranks_per_node), ranks_per_node[0])
        fabric = replace(fabric, library=_compare_library(fabric, raw["native"], place), library_place=place)
    free = free or (raw if not between else None)
    if machine.shared_cores and free:
        work = core_costs.read_core_costs(free, machine.shared_cores)
        fabric = replace(fabric, core_costs=replace(work, networks=raw.get("softirq_cores", 0.0)) if work else None)
    # All ranks encoded at the same time. On shared cores, the simulation also slows the codec down.
    computed = raw.get("codecs_of_a_core") if machine.shared_cores else None
    alone = max(1.0, sum(ranks_per_node) / machine.shared_cores) if machine.shared_cores and not computed else 1.0
    speeds = {
        name: CodecSpeed(
            speed["encode_bytes_per_s"] * alone,
            speed["decode_bytes_per_s"] * alone,
            speed["call_s"] / alone,
            speed["ratio"],
            InputBasis.HERE,
        )
        for name, speed in (computed or raw["codecs"]).items()
    }
    return replace(machine, fabric=fabric), speeds


def _compare_library(
    fabric: Fabric, native: Sequence[tuple[str, int, float]], place: GroupPlacement
) -> tuple[tuple[str, float], ...]:
    """Return the ratio of measured to modeled time of each library collective at its largest size."""
    factors = {}
    for operation, nbytes, seconds in sorted(native, key=lambda row: row[1]):
        modeled = fabric.collective_seconds(operation, nbytes, place) if operation in ROUNDS else 0.0
        if modeled:
            factors[operation] = seconds / modeled
    return tuple(factors.items())
