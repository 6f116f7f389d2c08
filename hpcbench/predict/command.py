"""``hpcbench predict``: from a study and a site to tables, a file or a page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.batch.plan import choose
from hpcbench.batch.sites.site import Site, load_site
from hpcbench.errors import UserError
from hpcbench.predict import measured as tables
from hpcbench.predict.machine import Machine, of_cpu, of_gpu
from hpcbench.predict.memory import memory, remedy
from hpcbench.predict.prediction import Prediction, on_ranks, predict
from hpcbench.predict.subject import Subject, of_run_file
from hpcbench.predict.traffic import CodecSpeed
from hpcbench.study.expand import Run, expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file

SCHEMA = 1


def machine_of(site: Site, ranks_per_node: int) -> Machine:
    """The site as the model sees it.

    Raises
    ------
    UserError
        Nothing is known of its GPU.
    """
    node, gbit = site.node, site.network.bandwidth_gbit if site.network else None
    if site.device == "cpu":
        cores = max(1, node.usable_cores // ranks_per_node)
        memory_bytes = node.memory_gb * 1e9 / ranks_per_node if node.memory_gb else None
        return of_cpu(
            site.site, cores=cores, ranks_per_node=ranks_per_node, memory_bytes=memory_bytes, node_gbit=gbit
        )
    # a node's four GPUs in two sockets are joined by a slower link than NVLink between the sockets
    within = 32.0 if "V100" in (node.gpu or "") and node.sockets == 2 and ranks_per_node > node.gpus // 2 else None
    latency = site.network.latency_us * 1e-6 if site.network and site.network.latency_us else None
    found = of_gpu(
        node.gpu or "",
        memory_gb=node.gpu_memory_gb,
        gpus_per_node=ranks_per_node,
        node_gbit=gbit,
        latency_s=latency,
        within_gb_s=within,
    )
    if found is None:
        raise UserError(
            f"{site.site}: node.gpu: {node.gpu!r} has no table of products: known are V100, A100, H100, H200 and what "
            "is like them: measure it with `hpcbench bench gemm`"
        )
    return found


def subject_of(run: Run, site: Site, base: Path) -> Subject:
    """A study's run as the model takes it.

    Raises
    ------
    UserError
        It uses something that the model lacks.
    """
    raw = run_file(
        run,
        site=site.site,
        threads=site.threads or 1,
        oversubscribe=site.oversubscribe,
        device=site.device,
        base=base,
    )
    try:
        return of_run_file(raw, ranks_per_node=run.size.ranks_per_node)
    except ValueError as error:
        raise UserError(f"{run.where(('train',))}: {error}: predict the study without it") from None


def predict_study(
    study: Path,
    *,
    site: str | None,
    measured: Path | None,
    ranks: Sequence[int],
    sets: Sequence[str],
    only: str | None = None,
) -> tuple[list[Prediction], dict[str, Any], Machine]:
    """Predict each cell and scheme of a study once: repeats differ by nothing that is predicted.

    Returns
    -------
    The predictions, what they rest on, and the last cell's machine.

    Raises
    ------
    UserError
        Study, site or options are wrong, or the study uses what the model lacks.
    """
    loaded = load_study(study, list(sets))
    name = site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: site: is missing: add it, or give --site")
    place, _ = load_site(name, "--site" if site else loaded.document.where(("site",)))
    runs = expand(loaded, place.room, place.offer)
    runs = choose(runs, only) if only is not None else runs
    known = tables.read(measured or Path("measured") / place.site, asked_for=measured is not None)
    cells: dict[tuple[str, int], list[tuple[str, Subject]]] = {}
    for run in runs:
        if run.repeat != 1:
            continue
        subject = subject_of(run, place, study.parent)
        words = ", ".join(f"{key}={value}" for key, value in run.cell.items())
        for count in ranks or [run.size.ranks]:
            try:
                scaled = subject if count == run.size.ranks else on_ranks(subject, count)
            except ValueError as error:
                raise UserError(f"--ranks {count}: {error}: give another number") from None
            cells.setdefault((words, count), []).append((run.scheme_name, scaled))
    found: list[Prediction] = []
    machine = None
    for (words, _), subjects in cells.items():
        machine, speeds = _measured_machine(place, subjects[0][1], known)
        found += predict(words, subjects, machine, baseline=loaded.study.baseline.scheme, speeds=speeds)
    assert machine is not None
    about = {
        "schema": SCHEMA,
        "study": loaded.study.study,
        "site": place.site,
        "baseline": loaded.study.baseline.scheme,
        "device": machine.device.name,
        "measured": [str(known.directory / name) for name in known.names] if known.directory else [],
        "products": {"basis": machine.products.basis.value, "source": machine.products.source},
        "links": {"within": machine.fabric.within_basis.value, "between": machine.fabric.between_basis.value},
    }
    return found, about, machine


def _measured_machine(
    place: Site, subject: Subject, known: tables.Measured
) -> tuple[Machine, dict[str, CodecSpeed]]:
    machine = machine_of(place, subject.ranks_per_node)
    return tables.improve(machine, known, subject.train.precision)


def document(found: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Everything as plain data."""
    runs = [one.to_json(machine.device.peak(one.subject.train.precision)) for one in found]
    return {**about, "predictions": runs}


def keep(path: Path, found: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> None:
    """Write the prediction beside a submission, for the report."""
    path.write_text(json.dumps(document(found, about, machine), indent=1) + "\n", encoding="utf-8")


def check_memory(runs: Sequence[Run], site: Site, base: Path) -> None:
    """Refuse a study one of whose runs needs more memory than its devices have; what is unknown is not refused.

    Raises
    ------
    UserError
        A run does not fit, with the remedy.
    """
    if site.device == "cpu":
        return
    for run in runs:
        if run.repeat != 1:
            continue
        try:
            machine = machine_of(site, run.size.ranks_per_node)
            subject = subject_of(run, site, base)
        except UserError:
            continue  # of this GPU, or of this run, nothing is known: `hpcbench predict` says so
        needed = memory(subject, machine.device.memory_bytes)
        if needed.fits is False and needed.figure.low > (needed.limit or 0):
            assert needed.limit is not None
            raise UserError(
                f"{run.where(('layout',))}: run {run.id} needs {needed.bytes / 1e9:.1f} GB on rank {needed.rank} "
                f"({needed.peak}), and a {machine.device.name} has {needed.limit / 1e9:.0f} GB: "
                f"{remedy(subject, needed)}"
            )
