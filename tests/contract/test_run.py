"""Tests that a run uses the schemas of a study.

A new setting needs only one field, which the login node and the ranks share.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import hpcbench
from hpcbench.contract.layout import Layout, Partition
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import RankShape, Run, load
from hpcbench.contract.scheme import NamedScheme, Scheme
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase, list_possible_traffic
from hpcbench.contract.training import CONTENTS, Data, Model, Train
from hpcbench.errors import UserError
from hpcbench.study.schema import SchemeEntry, Study, StudyLayout, json_schema

RUN = Run(
    study="s",
    site="local",
    run="r1",
    repeat=1,
    pairing="r1",
    cell={"nodes": 1},
    model=Model(layers=2, hidden=32, heads=4),
    data=Data(),
    train=Train(steps=20, global_batch=8),
    layout=Layout(dp=2, tp=2),
    scheme=NamedScheme(name="own", rules=[Rule(dimension="DP", codec="zfp:8")]),
    ranks=4,
    threads=1,
    oversubscribe=True,
    device="cpu",
    links=None,
    shape=RankShape(nodes=1, ranks_per_node=4, cores_per_rank=1, gpus_per_rank="0", visibility="all"),
)


def paths(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Return every key of nested JSON data, except the keys of mappings with free keys."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        if isinstance(content, dict):
            yield (*path, key)
        if key not in ("cell", "peak_tflops", "environment"):
            yield from paths(value, (*path, key))


def without(content: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    copy = json.loads(json.dumps(content))
    inner: Any = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return dict(copy)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN.content()))
    run, raw = load(path)
    assert run == RUN and raw == RUN.content()


@pytest.mark.parametrize("path", [*paths(RUN.content())], ids=lambda path: ".".join(map(str, path)))
def test_a_rank_fills_nothing_in(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(without(RUN.content(), path)))
    with pytest.raises(UserError) as caught:
        load(file)
    message, name = str(caught.value), ".".join(map(str, path))
    assert message.startswith(f"{file}: {name}: is missing") and message.endswith("`hpcbench submit`")


def fields(*models: type[BaseModel]) -> list[set[str]]:
    return [set(model.model_fields) for model in models]


def test_study_and_run_are_of_the_same_schemas() -> None:
    for name, schema in (("model", Model), ("data", Data), ("train", Train)):
        assert Study.model_fields[name].annotation is Run.model_fields[name].annotation is schema
        defined = json_schema()["$defs"][schema.__name__]["properties"]
        assert set(defined) == set(RUN.content()[name]) == set(schema.model_fields)
    assert issubclass(Layout, Partition) and issubclass(StudyLayout, Partition)
    assert set(Layout.model_fields) == set(StudyLayout.model_fields)
    of_all, of_runs, of_files = fields(Scheme, NamedScheme, SchemeEntry)
    assert (of_runs - of_all, of_files - of_all) == ({"name"}, {"description", "system"})


NEW_FIELD = '    pressure: float = Field(2.5, gt=0, description="Of the boiler.")\n    seed: int'
ONE_FIELD = """
import json, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__.lower()]
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import hpcbench.contract.run as contract
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.schema import json_schema
from hpcbench.study.size import Capacity

assert Path(contract.__file__).is_relative_to(sys.argv[1]), contract.__file__
loaded = load_study(Path(sys.argv[2]), ["train.pressure=7.5"])
run = expand(loaded, Capacity("local", None, 2))[0]
path = Path(sys.argv[1]) / "run.json"
path.write_text(json.dumps(run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=Path("/"))))
print(contract.load(path)[0].train.pressure, json_schema()["$defs"]["Train"]["properties"]["pressure"]["default"])
"""


def test_a_new_setting_of_training_is_one_field(tmp_path: Path) -> None:
    package = Path(hpcbench.__file__).parent
    shutil.copytree(package, tmp_path / "hpcbench", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    schema = tmp_path / "hpcbench" / "contract" / "training.py"
    text = schema.read_text(encoding="utf-8")
    assert text.count("    seed: int") == 1
    schema.write_text(text.replace("    seed: int", NEW_FIELD), encoding="utf-8")
    study = package.parent / "studies" / "demo.yaml"
    done = subprocess.run(
        [sys.executable, "-c", ONE_FIELD, str(tmp_path), str(study)], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("7.5 2.5\n", "")


def test_a_rank_reads_its_run_without_what_only_studies_need() -> None:
    code = "import sys, hpcbench.contract.run; print(*sorted(name for name in sys.modules if name.count('.') < 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "pydantic" in modules and not modules & {"hpcbench.study", "ruamel", "numpy", "torch", "mpi4py", "rich"}


def test_the_words_of_a_scheme_are_the_traffic_there_is() -> None:
    def list_choices(schema: type[BaseModel], name: str) -> set[str]:
        annotation: Any = schema.model_fields[name].annotation
        inner = next((part for part in get_args(annotation) if get_args(part)), annotation)
        return set(get_args(inner))

    triples = list_possible_traffic()
    for k, (name, kinds) in enumerate((("dimension", Dimension), ("phase", Phase), ("kind", MessageKind))):
        assert list_choices(Rule, name) == {triple[k] for triple in triples} <= {kind.value for kind in kinds}
    assert list_choices(Scheme, "algorithm") == {algorithm.value for algorithm in Algorithm}
    assert CONTENTS == ("activations", "gradients", "parameters")
