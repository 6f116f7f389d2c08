"""Tests of hostile text in each string of studies and sites.

The text is either refused with a one-line message, or passed on without being executed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_text import HOSTILE, Keys, changed, texts, yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hpcbench.batch.sites import site as site_schema
from hpcbench.batch.submit import Options, submit
from hpcbench.errors import UserError
from hpcbench.study import schema as study_schema

SITE: dict[str, Any] = {
    "site": "fuzz",
    "description": "d",
    "scheduler": {
        "kind": "slurm",
        "account_option": "--account",
        "queue_option": "--partition",
        "gpu_request": "none",
        "refuses": ["--export"],
        "max_array": 1000,
        "max_submitted": 1000,
        "directives": {"--comment": "c"},
    },
    "queues": {
        "q1": {
            "min_nodes": 1,
            "max_nodes": 9,
            "max_walltime": "5h",
            "bins": [{"max_nodes": 9, "max_walltime": "4h"}],
            "max_submitted": 1000,
            "source": "s",
        }
    },
    "walltime": "1h",
    "node": {
        "gpus": 1,
        "gpu": "g",
        "gpu_memory_gb": 1.0,
        "gpu_peak_tflops": {"fp32": 1.0},
        "gpu_exclusive": False,
        "cores": 4,
        "sockets": 1,
        "socket_gpus": [1],
        "cores_per_gpu": 4,
        "threads_per_core": 1,
        "memory_gb": 1.0,
    },
    "network": {"description": "n", "bandwidth_gbit": 1.0, "latency_us": 1.0},
    "launcher": {"kind": "mpich", "program": "launch", "args": ["a1", "a2"], "visibility": "one"},
    "ranks_per_node": 4,
    "threads": 1,
    "oversubscribe": True,
    "device": "cpu",
    "gpu_aware_mpi": False,
    "transport": "mpi",
    "modules": ["m1", "m2"],
    "environment": {"SITE_VARIABLE": "v"},
    "schemes": {
        "own": {
            "algorithm": "native",
            "default": "none",
            "rules": [
                {
                    "dimension": "DP",
                    "axis": None,
                    "phase": "BACKWARD",
                    "kind": "GRAD",
                    "codec": "none",
                    "feedback": False,
                    "min_bytes": 0,
                    "between_nodes": False,
                    "feedback_average": 0.0,
                    "feedback_reset": 0,
                    "low_rank": 0,
                    "sample_changes": 0,
                    "mixed_bits": 0.0,
                    "differences": False,
                    "from_step": 1,
                    "until_step": None,
                },
            ],
            "environment": {"SCHEME_VARIABLE": "w"},
            "optimizer": "adamw",
            "description": "d",
        },
        "unused": {"system": "ddp-hook", "arguments": "a", "preload": "/p.so", "setup": ["true"]},
    },
    "setup": ["true"],
    "teardown": ["true"],
    "templates": None,
    "container": {
        "kind": "apptainer",
        "image": None,
        "binds": ["/b"],
        "gpu": "none",
        "mpi": "hybrid",
        "mpi_paths": ["/p"],
        "python": "inside",
        "args": ["c1"],
    },
    "python": "py",
    "work": "w",
    "retired": "r",
    "sources": ["s"],
    "checked": "never",
}
STUDY: dict[str, Any] = {
    "study": "fuzz",
    "site": "fuzz",
    "description": "d",
    "account": "a",
    "queue": "q1",
    "walltime": "1h",
    "run_limit": "10m",
    "stop_ahead": "1m",
    "after": None,
    "requeue": 1,
    "notify": "me@site.example",
    "model": {
        "name": "m",
        "layers": 2,
        "hidden": 64,
        "heads": 2,
        "positions": "rotary",
        "activation": "gelu",
        "norm": "layernorm",
        "experts": {"count": 2, "drop": "position"},
    },
    "data": {"source": "stdlib", "path": None, "tokenizer": None, "dtype": None, "samples": None},
    "train": {
        "steps": 20,
        "global_batch": 8,
        "precision": "fp32",
        "schedule": "1f1b",
        "recompute": "none",
        "optimizer": "adamw",
        "sync": "all-reduce",
        "sparse_gradients": "never",
        "transport": "mpi",
        "prune": "none",
        "comm_precision": dict.fromkeys(("activations", "gradients", "parameters"), "auto"),
        "codec_effects": {"steps": [5], "codecs": ["int8"]},
    },
    "layout": {"dp": 2, "pp": 2, "tensor": "1d", "context": "ring", "stages": "auto"},
    "scheme": "baseline",
    "links": None,
    "schemes": {"mine": {"default": "none", "algorithm": "encoded", "description": "d"}},
    "matrix": {"scheme": ["baseline", "own", "mine"], "model.positions": ["rotary"]},
    "repeats": 1,
    "pairing": "allocation",
    "baseline": {"scheme": "baseline"},
    "thresholds": [
        {
            "quantity": "loss",
            "max": 9.0,
            "scheme": "mine",
            "cell": {"model.positions": "rotary"},
            "reference": 2.0,
            "confidence": 0.95,
        }
    ],
}
HEADS = 16
"""Directives of the scripts, for all values of the fields."""
SHELL = {("setup", 0), ("teardown", 0)}
"""Lines of the site file that are executed as shell code."""

LAUNCHER = """\
#!{python}
import json, os, sys
with open({seen!r}, "a") as out:
    print(json.dumps(sys.argv[1:]), file=out)
with open({seen!r} + "." + os.path.basename(os.path.dirname(sys.argv[-1])), "wb") as out:
    out.write(open("/proc/self/environ", "rb").read())
"""


REFUSALS = {("scheduler", "refuses", 0)}
"""Field whose entries must be distinct and never reach a script."""
FIELDS = [("site", keys) for keys in texts(SITE) if keys not in SHELL | REFUSALS]
FIELDS += [("study", keys) for keys in texts(STUDY)]


class Place:
    """A directory to submit from, with a record of its launcher's calls."""

    def __init__(self, directory: Path, name: str = "launch") -> None:
        self.directory = directory
        (directory / "bin").mkdir(parents=True)
        self.seen = directory / "seen"
        self.launcher = directory / "bin" / name
        self.launcher.write_text(LAUNCHER.format(python=sys.executable, seen=str(self.seen)), encoding="utf-8")
        self.launcher.chmod(0o755)

    def submit(self, study: dict[str, Any], site: dict[str, Any]) -> Path:
        for name, data in (("study", study), ("fuzz", site)):
            (self.directory / f"{name}.yaml").write_text(yaml(data), encoding="utf-8")
        out = self.directory / "out"
        return submit(
            self.directory / "study.yaml", Options(site=str(self.directory / "fuzz.yaml"), dry_run=True, out=out)
        ).root

    def run(self, root: Path) -> None:
        """Run each job script in an empty directory, with a `module` command that records its arguments."""
        empty = self.directory / "empty"
        empty.mkdir()
        keep = f'() {{ [ "$1" != load ] || printf "%s\\0" "$2" >> {self.directory}/modules; }}'
        environment = {"PATH": os.environ["PATH"], "BASH_FUNC_module%%": keep, "LC_ALL": "C.UTF-8"}
        for script in sorted(root.glob("jobs/*/job.sh")):
            done = subprocess.run(
                ["bash", str(script)], cwd=empty, env=environment, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")
        assert not list(empty.iterdir())

    def nothing_happened(self) -> None:
        assert [path for path in self.directory.rglob("*pwned*") if path != self.launcher] == []


def accepted(place: Place, where: str, keys: Keys, text: str) -> bool:
    """Return whether a field accepts this text. If the field refuses the text, check that the message is one line."""
    study, site = (changed(d, keys, text) if n == where else d for n, d in (("study", STUDY), ("site", SITE)))
    try:
        root = place.submit(study, site)
    except UserError as error:
        message = str(error)
        assert message.isprintable() and len(message) < 1000, message
        return False
    for script in root.glob("jobs/*/job.sh"):
        lines = script.read_text(encoding="utf-8").split("\n")
        heads = [line for line in lines if line.lstrip().startswith(("#SBATCH", "#BSUB")) or "flux:" in line]
        assert len(heads) == HEADS and lines[1 : 1 + HEADS] == heads
    return True


def test_the_documents_hold_every_field() -> None:
    def names(schema: dict[str, Any]) -> set[str]:
        parts = [schema, *schema.get("$defs", {}).values()]
        return {name for part in parts for name in part.get("properties", {})}

    def keys(data: Any) -> set[str]:
        values = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
        return (set(data) if isinstance(data, dict) else set()).union(*map(keys, values))

    of_lsf = {"allocation", "hand_in"}  # one word of two
    assert names(site_schema.json_schema()) - of_lsf <= keys(SITE)
    properties = study_schema.Study.model_json_schema()
    text = {
        name
        for part in (properties, *properties["$defs"].values())
        for name, field in part.get("properties", {}).items()
        if '"string"' in json.dumps(field)
    }
    with_dense_weights = {"pattern"}  # fields of sparse models, which exclude experts
    assert text - {"exclude", "zip", *with_dense_weights} <= keys(STUDY) | keys(SITE)


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=() if i % 4 == 0 else pytest.mark.long) for i, text in enumerate(HOSTILE)],
    ids=ascii,
)
def test_hostile_text_is_refused_in_one_line_or_arrives_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path / "place")
    taken = [(where, keys) for where, keys in FIELDS if accepted(place, where, keys, text)]
    place.nothing_happened()
    documents = {"study": STUDY, "site": SITE}
    for where, keys in taken:  # names of sites and schemes, and paths, must exist
        if keys[-1] != "+" and keys[-1] not in ("kind", "program", "path", "links", "after", "templates", "site"):
            documents[where] = changed(documents[where], keys, text)
    everything(tmp_path / "all", text, documents["study"], documents["site"])


def everything(directory: Path, text: str, study: dict[str, Any], site: dict[str, Any]) -> None:
    """Put the text into all fields that accept it, run the scripts, and compare what the launcher received."""
    good = text and text.isprintable() and not set("/=") & set(text) and len(text) < 200
    place = Place(directory, f"l{text}" if good else "launch")
    site = changed(site, ("launcher", "program"), str(place.launcher))
    root = place.submit(study, site)
    place.run(root)
    place.nothing_happened()
    calls = [json.loads(line) for line in place.seen.read_text(encoding="utf-8").splitlines()]
    for call, scheme in zip(calls, ("baseline", "own", "mine"), strict=True):
        assert call[-1].endswith(f"-{scheme}/run.json")
        tail = [*site["launcher"]["args"], site["python"], "-u", "-m", "hpcbench.train", call[-1]]
        container = site["container"]
        if container["image"]:  # the scheme runs in a container
            tail = [*container["args"], os.path.expanduser(container["image"]), container["python"], *tail[-4:]]  # noqa: PTH111 (any text)
            first = call.index("apptainer")
            assert call[first - len(site["launcher"]["args"]) : first] == site["launcher"]["args"]
        assert call[-len(tail) :] == tail
        arguments = Path(f"{place.seen}.{call[-1].split('/')[1]}").read_bytes().decode("utf-8").split("\0")
        environment = dict(word.split("=", 1) for word in arguments if word)
        assert environment["SITE_VARIABLE"] == site["environment"]["SITE_VARIABLE"]
        value = site["schemes"]["own"]["environment"]["SCHEME_VARIABLE"]
        assert environment.get("SCHEME_VARIABLE") == (value if scheme == "own" else None)
    loaded = (directory / "modules").read_text(encoding="utf-8").split("\0")[:-1]
    assert loaded == site["modules"]


LINES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
BITS = st.lists(
    st.sampled_from(["$(touch pwned)", "`touch pwned`", "'", '"', "\\", ";", "#SBATCH -q x", " ", "-", "$", "!", "&"]),
    max_size=6,
).map("".join)


@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(text=st.tuples(BITS, LINES, BITS).map("".join))
def test_generated_text_arrives_wherever_text_may_stand(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    site = SITE
    for keys in (("launcher", "args", 0), ("modules", 1), ("python",), ("environment", "SITE_VARIABLE")):
        site = changed(site, keys, text)
    site = changed(site, ("schemes", "own", "environment", "SCHEME_VARIABLE"), text)
    if text.isprintable():
        site = changed(site, ("scheduler", "directives", "--comment"), text)
    everything(tmp_path_factory.mktemp("generated"), text, STUDY, site)
