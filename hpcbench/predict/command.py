"""Implementation of ``hpcbench predict``: predictions for a study on a site."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.batch.plan_jobs import choose
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.predict import measured_tables as tables
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.earlier_runs import Calibration, calibrate, find_runs
from hpcbench.predict.machine import Machine
from hpcbench.predict.partition.plans import Plans, plan_stages
from hpcbench.predict.prediction import Prediction, predict, scale_to_ranks
from hpcbench.predict.prediction_file import SCHEMA, format_cell
from hpcbench.predict.program import ENGINE, TrainingProgram, load_program
from hpcbench.predict.study_inputs import describe_site, read_workload
from hpcbench.predict.workload import Workload
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study


def predict_study(
    study: Path,
    *,
    site: str | None,
    sets: Sequence[str],
    only: str | None = None,
    program: str = ENGINE.name,
    **options: Any,
) -> tuple[list[Prediction], dict[str, Any], Machine]:
    """Predict a study file. Parameters and result are the same as for `predict_runs`.

    Raises
    ------
    UserError
        The study, the site or an option is wrong, or the study uses a setting that the model does not cover.
    """
    loaded = load_study(study, list(sets))
    name = site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: no site is set: add `site:` to the study, or give --site")
    place, _ = load_site(name, "--site" if site else loaded.document.where(("site",)))
    runs = expand(loaded, place.capacity, offer(place))
    runs = choose(runs, only) if only is not None else runs
    return predict_runs(runs, place, study.parent, program=load_program(program), **options)


def predict_runs(
    runs: Sequence[ExpandedRun],
    place: Site,
    base: Path,
    *,
    measured: Path | None = None,
    ranks: Sequence[int] = (),
    skip: bool = False,
    partition: bool = False,
    program: TrainingProgram = ENGINE,
) -> tuple[list[Prediction], dict[str, Any], Machine]:
    """Predict each cell and scheme of a study once. Repeats share a prediction.

    Parameters
    ----------
    runs
        All runs of the study, or a selection.
    place
        The site.
    base
        Base directory of relative paths in the study.
    measured
        Directory with measured tables, or with completed runs.
    ranks
        Numbers of ranks to predict, which override the study.
    skip
        Whether to skip runs that cannot be predicted. Key ``refused`` of the second result contains the reasons.
    partition
        Whether to partition the models over the ranks. Key ``plans`` of the second result contains the partitions.
    program
        Training program that runs the study.

    Returns
    -------
    The predictions, a description of their inputs, and the machine of the last cell.

    Raises
    ------
    UserError
        An option is wrong, or the study uses a setting that the model does not cover.
    """
    study = runs[0].study
    measured_tables = tables.read_tables(measured or Path("measured") / place.site, asked_for=measured is not None)
    refused: list[str] = []
    cells: dict[tuple[str, int], list[tuple[str, Workload]]] = {}
    for run in runs:
        if run.repeat != 1:
            continue
        try:
            workload = read_workload(run, place, base, program)
        except UserError as error:
            if not skip:
                raise
            refused.append(str(error))
            continue
        cell = format_cell(run.cell)
        for count in ranks or [run.size.layout.ranks]:
            try:
                scaled = workload if count == run.size.layout.ranks else scale_to_ranks(workload, count)
            except ValueError as error:
                raise UserError(f"--ranks {count}: {error}: give a multiple") from None
            cells.setdefault((cell, count), []).append((run.scheme_name, scaled))
    lesson = _lesson(place, measured_tables, measured)
    predictions: list[Prediction] = []
    plans: list[Plans] = []
    machine = None
    for (cell, _), workloads in cells.items():
        machine, speeds = lesson.apply(_measured_machine(place, workloads[0][1], measured_tables))
        left_out = refused if skip else None
        if partition:
            plans += [plan_stages(cell, name, workload, machine, speeds) for name, workload in workloads]
        predictions += predict(
            cell, workloads, machine, baseline=study.baseline.scheme, speeds=speeds, refused=left_out
        )
    if machine is None:
        raise UserError(
            refused[0]
            if refused
            else "--only: matches no run of repeat 1, but only repeat 1 is predicted: leave the repeat out"
        )
    about = {
        "schema": SCHEMA,
        "study": study.study,
        "site": place.site,
        "baseline": study.baseline.scheme,
        "device": machine.device.name,
        "program": {
            "name": program.name,
            "title": program.title,
            "sources": list(program.sources),
            "assumed": list(program.assumed),
        },
        "measured": [str(measured_tables.directory / name) for name in measured_tables.names]
        if measured_tables.directory
        else [],
        "learned": lesson.describe(),
        "refused": list(dict.fromkeys(refused)),
        "plans": plans,
        "products": {"basis": machine.products.basis.value, "source": machine.products.source},
        "links": {"within": machine.fabric.within_basis.value, "between": machine.fabric.between_basis.value},
        "node_bytes_per_s": machine.fabric.node_bytes_per_s,
    }
    return predictions, about, machine


def _lesson(place: Site, measured_tables: tables.MeasuredTables, directory: Path | None) -> Calibration:
    """Calibrate the model with the completed runs below the `--measured` directory."""
    if directory is None:
        return Calibration()
    runs = find_runs(directory, place.site)
    if not runs and not measured_tables.names:
        raise UserError(
            f"--measured {directory}: contains neither {tables.PRODUCTS} nor {tables.NETWORK}, nor completed runs "
            f"on {place.site}: create the tables with `hpcbench bench gemm` and `hpcbench bench network`"
        )
    return calibrate(runs, lambda workload: _measured_machine(place, workload, measured_tables))


def _measured_machine(
    place: Site, workload: Workload, measured_tables: tables.MeasuredTables
) -> tuple[Machine, dict[str, CodecSpeed]]:
    machine = describe_site(place, workload.ranks_per_node, workload.layout.ranks)
    return tables.apply_tables(machine, measured_tables, workload.train.precision)


def make_document(predictions: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Return all predictions and their inputs as plain data."""
    runs = [prediction.to_json(machine.device.peak(prediction.workload.train.precision)) for prediction in predictions]
    plans = [asdict(plan) for plan in about["plans"]]
    others = {key: value for key, value in about.items() if key != "plans"}
    return {**others, **({"partition": plans} if plans else {}), "predictions": runs}
