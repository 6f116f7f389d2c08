"""Tests of errors in studies. Each error names the file, line, field and remedy. `--set` follows the same schema."""

import json
import re
from pathlib import Path

import pytest

from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site
from hpcbench.contract.problems import PATTERN_REMEDIES
from hpcbench.errors import UserError
from hpcbench.resources import data_dir
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.schema import ProgramStudy, Study, json_schema
from hpcbench.study.size import Capacity

GOOD = """\
study: good
model: gpt-tiny
train:
  steps: 20
  global_batch: 8
layout: {dp: 2, tp: 2, pp: 2}
matrix:
  scheme: [baseline, mzhybrid]
"""
ROOM = Capacity("here", None, 8)


def load(tmp_path: Path, text: str = GOOD, sets: list[str] | None = None) -> list[str]:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    return [run.id for run in expand(load_study(path, sets), ROOM)]


def complaint(tmp_path: Path, text: str = GOOD, sets: list[str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text, sets)
    message = str(caught.value)
    assert all(line.isprintable() for line in message.split("\n"))  # one line per error
    return message.replace(str(tmp_path / "s.yaml"), "FILE")


def test_a_good_study_loads(tmp_path: Path) -> None:
    assert load(tmp_path) == [
        f"r{r}-{s}"
        for r, order in ((1, "bm"), (2, "mb"), (3, "bm"))
        for s in map({"b": "baseline", "m": "mzhybrid"}.__getitem__, order)
    ]


@pytest.mark.parametrize(
    ("old", "new", "begins", "says"),
    [
        (
            "  steps: 20",
            "  stpes: 20",
            "FILE:4: train.stpes:",
            "did you mean 'steps'?)\nFILE:3: train.steps: is missing",
        ),
        ("  steps: 20\n", "", "FILE:3: train.steps:", "is missing"),
        ("  global_batch: 8", "  global_batch: 8\n  micro_batsh: 2", "FILE:6: train.micro_batsh:", "'micro_batch'"),
        ("study: good", "stduy: good\nstudy: good", "FILE:1: stduy:", "did you mean 'study'?"),
        ("study: good", "study: 'a b'", "FILE:1: study:", "is not a name"),
        ("study: good", "study: 'a\"b'", "FILE:1: study:", "is not a name"),
        ("study: good", "study: $(touch pwned)", "FILE:1: study:", "is not a name"),
        ("study: good", 'study: "a\\nb"', "FILE:1: study:", "is not a name"),
        ("study: good", 'study: "a\\n"', "FILE:1: study:", "is not a name"),
        ("study: good", "study: ../x", "FILE:1: study:", "is not a name"),
        ("study: good", "study: -x", "FILE:1: study:", "is not a name"),
        ("study: good", f"study: {'x' * 65}", "FILE:1: study:", "is not a name"),
        ("study: good", "study: 12", "FILE:1: study:", "must be text, not 12"),
        ("study: good", "study:", "FILE:1: study:", "must be text, not nothing"),
        ("  steps: 20", "  steps: '20'", "FILE:4: train.steps:", "remove the quotes"),
        ("  steps: 20", "  steps: 20.5", "FILE:4: train.steps:", "whole number"),
        ("  steps: 20", "  steps: yes", "FILE:4: train.steps:", "whole number, not 'yes'"),
        ("  steps: 20", "  steps: 0", "FILE:4: train.steps:", "at least 1"),
        ("  steps: 20", "  steps: 10", "FILE:3: train:", "leaves none of 10 steps"),
        ("  steps: 20", "  steps: 20\n  lr: .nan", "FILE:5: train.lr:", "finite"),
        ("  steps: 20", "  steps: 20\n  precision: fp23", "FILE:5: train.precision:", "did you mean 'fp32'?"),
        ("model: gpt-tiny", "model: gpt-tinny", "FILE:2: model:", "did you mean 'gpt-tiny'?"),
        ("model: gpt-tiny", "model: {preset: gpt-tiny, layers: 1}", "FILE:6: layout.pp:", "use at most 1"),
        (
            "model: gpt-tiny",
            "model: {layers: 4, hidden: 10, heads: 4}",
            "FILE:2: model.heads:",
            "use one of 1, 2, 5, 10",
        ),
        ("model: gpt-tiny", "model: {layers: 4}", "FILE:2: model.hidden:", "is missing"),
        ("model: gpt-tiny\n", "", "FILE: model:", "is missing"),
        ("train:", "data: {source: file}\ntrain:", "FILE:3: data:", "path does not fit source"),
        ("tp: 2", "tp: 3", "FILE:6: layout.tp:", "use one of 1, 2, 4"),
        (
            "  steps: 20",
            "  steps: 20\n  seq_len: 9\n  sequence_parallel: true",
            "FILE:5: train.seq_len:",
            "into layout.tp 2 equal parts: use 10, or sequence_parallel: false",
        ),
        ("dp: 2", "dp: 3", "FILE:5: train.global_batch:", "use 6 or 9"),
        ("layout:", "partition: x\nlayout:", "FILE:6: partition:", "unknown key (did you mean 'queue'?)"),
        ("layout:", "walltime: 10\nlayout:", "FILE:6: walltime:", "10 has no unit: write 10m for minutes or 10s for"),
        ("pp: 2", "pp: 5", "FILE:6: layout.pp:", "use at most 4"),
        ("layout:", "nodes: 3\nlayout:", "FILE:6: nodes:", "3 does not divide dp x tp x pp"),
        (
            "dp: 2, tp: 2",
            "cp: 3, tp: 2",
            "FILE:3: train.seq_len:",
            "2048 cannot be divided into layout.cp 3 equal parts of two",
        ),
        ("layout: {", "nodes: 3\nlayout: {cp: 2, ", "FILE:6: nodes:", "divide dp x cp x tp x pp = 2 x 2 x 2 x 2 = 16"),
        ("dp: 2,", "cp: 2, context: wheel,", "FILE:6: layout.context:", "must be 'ring', 'rsa' or 'ulysses'"),
        ("mzhybrid]", "mzhybird]", "FILE:8:", "did you mean 'mzhybrid'?"),
        ("mzhybrid]", "naive-zfp99]", "FILE:8: scheme 'naive-zfp99':", "from 4 to 32"),
        ("mzhybrid]", "mzhybrid, mzhybrid]", "FILE:8: matrix.scheme:", "is listed twice"),
        ("[baseline, mzhybrid]", "[mzhybrid]", "FILE:8: scheme:", "the baseline 'baseline' has no run"),
        ("[baseline, mzhybrid]", "[]", "FILE:8: matrix.scheme:", "no value"),
        ("[baseline, mzhybrid]", "baseline", "FILE:8: matrix.scheme:", "must be a list"),
        ("  scheme: [b", "  schema: [b", "FILE:8: matrix:", "did you mean 'scheme'?"),
        ("  scheme: [b", "  micro_batch: [1, 2]\n  scheme: [b", "FILE:8: matrix:", "did you mean 'train.micro_batch'?"),
        ("  scheme: [b", "  train.micro_batch: [1, 0]\n  scheme: [b", "FILE:8: train.micro_batch:", "at least 1"),
        ("  scheme: [b", "  repeats: [1, 2]\n  scheme: [b", "FILE:8: matrix:", "cannot vary"),
        ("matrix:", "schemes: {a: {algorithm: native, default: mpc}}\nmatrix:", "FILE:7: schemes.a:", "runs no codec"),
        (
            "matrix:",
            "schemes: {a: {rules: [{codec: lz4}]}}\nmatrix:",
            "FILE:7: schemes.a.rules.0.codec:",
            "unknown codec",
        ),
        (
            "matrix:",
            "schemes: {a: {algorithm: native, default: mpc, environment: {A: b}}}\nmatrix:",
            "FILE:7: schemes.a:",
            "runs no codec",
        ),
        *(
            ("[baseline, mzhybrid]", f"[baseline, a]\nschemes:\n  a: {{{fields}}}", begins, says)
            for fields, begins, says in [
                ("arguments: --bits 4", "FILE:10: schemes.a.arguments:", "only studies of a program support"),
                ("arguments: --bits '4", "FILE:10: schemes.a.arguments:", "close the quote"),
                ("preload: 'a:b.so'", "FILE:10: schemes.a.preload:", "separates libraries in LD_PRELOAD"),
                ("preload: ''", "FILE:10: schemes.a.preload:", "must not be empty"),
                ("setup: module load x", "FILE:10: schemes.a.setup:", "must be a list"),
                ("system: cocl", "FILE:10: schemes.a:", "system 'cocl' is unknown (did you mean 'coccl'?)"),
                ("system: coccl", "FILE:10: schemes.a:", "system coccl needs preload: add it to the scheme"),
                (
                    "system: coccl, preload: x.so",
                    "FILE:10: schemes.a:",
                    "system coccl needs environment.COCCL_CONFIG_FILE: add it to the scheme",
                ),
                ("system: megatron-bf16", "FILE:10: schemes.a.arguments:", "only studies of a program support"),
            ]
        ),
        *(
            ("matrix:", f"schemes: {{a: {{algorithm: native, environment: {{{variable}}}}}}}\nmatrix:", begins, says)
            for variable, begins, says in [
                ("PATH: /x", "FILE:7: schemes.a.environment:", "PATH changes which programs and libraries run"),
                ("LD_LIBRARY_PATH: /x", "FILE:7: schemes.a.environment:", "LD_LIBRARY_PATH changes which programs"),
                ("PYTHONPATH: /x", "FILE:7: schemes.a.environment:", "PYTHONPATH changes which programs"),
                ("HPCBENCH_ISA: avx2", "FILE:7: schemes.a.environment:", "HPCBENCH_ISA is set by hpcbench"),
                ("OMP_NUM_THREADS: '2'", "FILE:7: schemes.a.environment:", "follows from the site and the layout"),
                ("A-B: x", "FILE:7: schemes.a.environment.A-B:", "is not a variable name"),
                ("'A=1 B': x", "FILE:7: schemes.a.environment.A=1 B:", "is not a variable name"),
                ("'': x", "FILE:7: schemes.a.environment.:", "is not a variable name"),
                ("A: 16", "FILE:7: schemes.a.environment.A:", "put it in quotes"),
                ('A: "x\\ny"', "FILE:7: schemes.a.environment.A:", "has several lines"),
            ]
        ),
        ("matrix:", "account: -x\nmatrix:", "FILE:7: account:", "is not a name: use at most 128"),
        ("matrix:", "queue: 'a b'\nmatrix:", "FILE:7: queue:", "is not a name: use at most 128"),
        ("matrix:", "repeats: 0\nmatrix:", "FILE:7: repeats:", "at least 1"),
    ],
)
def test_faults_name_line_field_and_remedy(tmp_path: Path, old: str, new: str, begins: str, says: str) -> None:
    assert old in GOOD
    message = complaint(tmp_path, GOOD.replace(old, new, 1))
    assert message.startswith(begins + ("" if begins.endswith(":") else " ")), message
    assert says in message, message


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("train.stpes=1", "train.stpes: unknown key (did you mean 'steps'?)"),
        ("train.steps", "expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        ("train..steps=1", "expected KEY=VALUE"),
        ("train.steps=[1", "not YAML"),
        ("study.name=x", "study is 'good', not a mapping"),
        ("layout.tp=3", "use one of 1, 2, 4"),
        ("study=$(id)", "is not a name"),
        ("matrix.scheme=[baseline, nope]", "unknown scheme 'nope'"),
    ],
)
def test_set_is_held_to_the_schema_and_named(tmp_path: Path, option: str, says: str) -> None:
    message = complaint(tmp_path, sets=[option])
    assert message.startswith(f"--set {option}: "), message
    assert says in message, message


def test_set_overrides_values_sections_and_presets(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(GOOD, encoding="utf-8")
    sets = [
        "train.lr=2e-3",
        "model.layers=6",
        "criteria.loss_margin=0.05",
        "matrix.train.micro_batch=[1, 2]",
        "repeats=1",
    ]
    loaded = load_study(path, sets)
    study = loaded.study
    assert (study.train.lr, study.model.layers, study.model.hidden, study.criteria.loss_margin) == (2e-3, 6, 128, 0.05)
    assert {run.study.train.micro_batch for run in expand(loaded, ROOM)} == {1, 2}
    assert path.read_text(encoding="utf-8") == GOOD


def test_a_walltime_stays_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(GOOD + "walltime: 12:00\n", encoding="utf-8")
    assert load_study(path).study.walltime == "12:00"


@pytest.mark.parametrize("study", sorted(data_dir("studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_the_repository_load(study: Path) -> None:
    assert load_study(study).study.study == study.stem


def test_the_json_schema_knows_every_field_and_says_what_it_is() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["additionalProperties"] is False
    models = [schema, *schema["$defs"].values()]
    lacking = [
        name for model in models for name, field in model.get("properties", {}).items() if "description" not in field
    ]
    assert lacking == []
    assert {"study", "model", "train", "matrix", "criteria"} <= schema["properties"].keys()


def test_each_pattern_of_the_schemas_has_a_phrase() -> None:
    """No message may contain a regular expression."""
    patterns = set()
    for schema in (Study, ProgramStudy, Site):
        patterns |= set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(schema.model_json_schema())))
    assert {json.loads(pattern) for pattern in patterns} <= PATTERN_REMEDIES.keys()
    assert len(patterns) >= 6


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "s.yaml").write_text(
        "study: s\nsite: ~/site.yaml\nprogram: {command: a, directory: ~/x, log: nanogpt, steps: 1}\nscheme: baseline\n"
    )
    study = load_study(tmp_path / "s.yaml").study
    assert isinstance(study, ProgramStudy)
    assert (study.site, study.program.directory) == (f"{tmp_path}/site.yaml", f"{tmp_path}/x")
    with pytest.raises(
        UserError, match=rf"study.yaml:2: site file {tmp_path}/site.yaml does not exist \(paths are relative"
    ):
        load_site("~/site.yaml", "study.yaml:2")
    with pytest.raises(UserError, match=r"--site: site file ~nobody-here/site\.yaml does not exist"):
        load_site("~nobody-here/site.yaml")
