"""Conversion of axis labels to a study with one run that has the corresponding values."""

from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from schema_axes import AXES, Setting

from hpcbench.contract.grid import make_grid
from hpcbench.contract.run import Run
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import Loaded, put, validate
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity
from hpcbench.study.yaml12 import YamlDocument

Labels = dict[str, str]
"""Axis labels by axis name. `completed` adds the labels of missing axes."""

MOST_RANKS = 16
"""Two replicas, two stages or two context-parallel ranks, each on a tensor grid of eight ranks."""

_FIRST: Labels = {axis: next(iter(values.values)) for axis, values in AXES.items()}
_LOSSY = AXES["scheme"].rounding
_CAPACITY = Capacity("local", None, MOST_RANKS)
_BASE: dict[str, Any] = {
    "study": "pairs",
    "model": {"hidden": 32, "heads": 4, "rotary_fraction": 0.5},
    "train": {"steps": 2, "warmup_steps": 1, "seq_len": 8, "seed": 7, "lr": 1e-3},
    "layout": {},
    "scheme": "tested",
    "schemes": {"tested": {}},
    "baseline": {"scheme": "tested"},
    "repeats": 1,
}


def completed(labels: Labels) -> Labels:
    """Complete the labels. A missing axis takes its first label, or a label that the given labels require."""
    lossy = labels.get("scheme", "") in _LOSSY
    needed = {"precision": "fp32"} if lossy else {}
    if lossy and labels.get("precision") == "fp64":
        needed |= dict.fromkeys(("activations", "gradients", "parameters"), "fp32")
    chosen = {**_FIRST, **needed, **labels}
    if "dp" not in labels and _ranks(chosen) > MOST_RANKS:
        chosen["dp"] = "1"
    return chosen


def is_near(axis: str, label: str) -> bool:
    """Return whether a run with the value only approximates the single-process run."""
    return label in AXES[axis].rounding


def run_of(labels: Labels) -> Run | str:
    """Return the run that a submission would write, or the reason why the study is rejected."""
    return _run_of(tuple(sorted(labels.items())))


def ranks_of(labels: Labels) -> int | None:
    """Return the number of ranks, or None if the study is rejected or requires more than `MOST_RANKS`."""
    ranks = _ranks(completed(labels))
    return None if ranks > MOST_RANKS or isinstance(run_of(labels), str) else ranks


def fewest_ranks(labels: Labels) -> int | None:
    """Return the minimum number of ranks of a valid run with one or two replicas."""
    sizes = (ranks_of({"dp": dp} | labels) for dp in ("1", "2"))
    return min(filter(None, sizes), default=None)


def _setting(labels: Labels) -> Setting:
    return {name: value for axis, label in labels.items() for name, value in AXES[axis].values[label].items()}


def _ranks(labels: Labels) -> int:
    setting = _setting(labels)
    return prod(setting.get(f"layout.{name}", 1) for name in ("dp", "tp", "cp", "pp"))


def _study(labels: Labels) -> dict[str, Any]:
    """Return a study with one run. Fields that depend on other fields are derived."""
    setting = _setting(completed(labels))
    pp, dp = setting["layout.pp"], setting["layout.dp"]
    parts, stages = pp * setting.get("layout.chunks", 1), setting.get("layout.stages")
    layers = max(parts, 2) + (stages is not None and parts > 1)
    if stages == "uneven":
        setting["layout.stages"] = [1] * (parts - 1) + [layers - parts + 1]
    rows = make_grid(*(setting[f"layout.{name}"] for name in ("tensor", "tp", "depth"))).samples
    micro_batch = setting["train.micro_batch"] * rows
    micro_batches = 2 * pp if setting["train.schedule"] == "interleaved" else pp + 1
    even = rows > 1 or setting.get("layout.ep", 1) > 1
    setting |= {
        "model.layers": layers,
        "train.micro_batch": micro_batch,
        "train.global_batch": micro_batches * micro_batch * dp,
        "train.eval_samples": dp * rows + (not even),
    }
    data: dict[str, Any] = {name: dict(part) if isinstance(part, dict) else part for name, part in _BASE.items()}
    for name, value in setting.items():
        section, *fields = name.split(".")
        put(data, (section, *(["tested"] if section == "schemes" else []), *fields), value, name)
    return data


@cache
def _run_of(labels: tuple[tuple[str, str], ...]) -> Run | str:
    data = _study(dict(labels))
    document = YamlDocument("study.yaml", b"", data)
    try:
        (run,) = expand(Loaded(validate(data, document.where), document, []), _CAPACITY)
        content = run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=Path("/"))
    except UserError as error:
        return str(error)
    return Run.model_validate(content)
