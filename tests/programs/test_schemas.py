"""Tests that changed c10d operators in a new torch version are detected and not intercepted."""

import logging

import pytest
import torch

from hpcbench.contract.interpose import Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.programs import schemas
from hpcbench.programs.intercept import Interception
from hpcbench.programs.operators import Operators

SETTINGS = Interposition(scheme=NamedScheme(name="baseline", algorithm="native"), out="nowhere")


def test_every_operator_of_this_torch_is_known() -> None:
    operators = {s.name.removeprefix("c10d::") for s in torch._C._jit_get_all_schemas() if s.name.startswith("c10d::")}
    assert operators == set(schemas.ARGUMENTS) | schemas.SILENT
    assert schemas.unknown() == []
    for name in schemas.ARGUMENTS:
        assert schemas.strange(name, getattr(torch.ops.c10d, name).default._schema) is None


def test_every_operator_is_handled_or_counted() -> None:
    interception = Interception(SETTINGS)
    assert set(Operators(interception.account).handlers) | set(schemas.COUNTED) == set(schemas.ARGUMENTS)


def test_an_operator_with_other_arguments_is_not_intercepted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(schemas.ARGUMENTS, "send", ("tensors", "process_group", "dst"))
    interception = Interception(SETTINGS)
    with caplog.at_level(logging.WARNING):
        interception.install()
    interception.remove()
    (record,) = caplog.records
    assert record.getMessage().startswith("hpcbench: c10d.send has arguments tensors, process_group, dst, tag")


def test_an_operator_with_other_results_or_a_new_one_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schemas, "GIVE_VALUES", schemas.GIVE_VALUES | {"send"})
    monkeypatch.setattr(schemas, "SILENT", schemas.SILENT - {"barrier"})
    interception = Interception(SETTINGS)
    with caplog.at_level(logging.WARNING):
        interception.install()
    interception.remove()
    assert [record.getMessage().partition(":")[2].strip() for record in caplog.records] == [
        "c10d.send has 1 results, but 2 were expected: its calls are sent uncompressed and not counted",
        "c10d.barrier is not supported: its calls are sent uncompressed and not counted",
    ]


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.4.1+cpu")
    with pytest.raises(UserError, match=r"torch 2\.4\.1\+cpu: hpcbench run needs torch 2\.13 or later"):
        Interception(SETTINGS)
