"""Tests of the presets for other compression systems, and of schemes that complete a preset."""

from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.program import ProgramRun
from hpcbench.contract.run import RankShape
from hpcbench.contract.scheme import Scheme
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study
from hpcbench.study.run import program_file
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.show_schemes import show_scheme, show_schemes
from hpcbench.study.size import Capacity
from hpcbench.study.systems import read_systems

STUDY = """\
study: s
program: {command: python train.py, log: nanogpt, steps: 10}
nodes: 1
ranks_per_node: 2
matrix: {scheme: [baseline, megatron-bf16, mine, both]}
schemes:
  mine: {system: coccl, preload: lib/nccl.so, environment: {COCCL_CONFIG_FILE: p.toml, COCCL_ENABLE: "0"}}
  both: {algorithm: encoded, default: "int8:256", arguments: --fast}
repeats: 1
"""


def expand_study(tmp_path: Path) -> dict[str, ExpandedRun]:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return {run.scheme_name: run for run in expand(load_study(path), Capacity("here", None, 2))}


@pytest.mark.parametrize("name", read_systems())
def test_every_preset_makes_a_scheme_once_its_questions_are_answered(name: str) -> None:
    preset = read_systems()[name]
    given: dict[str, Any] = {"arguments": "--x", "preload": "x.so"}
    fields = {path: given[path] for path in preset.asks if path in given}
    inner = {path.partition(".")[2]: "x" for path in preset.asks if path.startswith("environment.")}
    scheme = SchemeEntry.model_validate({"system": name, **fields, **({"environment": inner} if inner else {})})
    assert scheme.process_changes and scheme.algorithm == "native"
    assert preset.source.startswith("https://") and (preset.checked == "never" or preset.checked.startswith("20"))


def test_schemes_are_written_into_run_files(tmp_path: Path) -> None:
    runs = expand_study(tmp_path)
    shape = RankShape(nodes=1, ranks_per_node=2, cores_per_rank=1, gpus_per_rank="0", visibility="one")

    def write(name: str) -> ProgramRun:
        content = program_file(
            runs[name],
            site="here",
            threads=1,
            oversubscribe=False,
            device="cpu",
            base=tmp_path,
            shape=shape,
            peak_tflops={},
        )
        return ProgramRun.model_validate(content)

    mine = write("mine").scheme
    assert mine.preload == str(tmp_path / "lib" / "nccl.so"), "a relative path starts at the study file"
    assert mine.environment == {"COCCL_ENABLE": "0", "COCCL_CONFIG_FILE": "p.toml"}, "the study's values win"
    assert write("megatron-bf16").scheme.arguments == "--grad-reduce-in-bf16"
    assert not write("mine").interposed, "nothing of hpcbench is in the process"
    both = write("both")
    assert both.interposed and both.scheme.arguments == "--fast" and both.scheme.default == "int8:256"


@pytest.mark.parametrize("field", ["environment", "arguments", "preload", "setup"])
def test_process_changes_alone_leave_the_collectives_to_the_library(field: str) -> None:
    value = {"environment": {"A": "b"}, "arguments": "--x", "preload": "x.so", "setup": ["true"]}[field]
    assert Scheme.model_validate({field: value}).algorithm == "native"
    assert Scheme.model_validate({field: value, "default": "int8:256"}).algorithm == "encoded"


def test_the_list_names_all_systems(capsys: pytest.CaptureFixture[str]) -> None:
    show_schemes()
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in (*read_systems(), "baseline", "bf16-fp32-sums"))
    show_scheme("coccl")
    shown = capsys.readouterr().out
    assert "add in the study  preload, environment.COCCL_CONFIG_FILE" in shown and "checked           never" in shown
    show_scheme("mzhybrid-4")
    assert capsys.readouterr().out == "algorithm encoded: DP zfp:4, all else mpc\n"
