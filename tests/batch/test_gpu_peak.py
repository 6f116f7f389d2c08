"""Tests that the GPU's peak FLOP/s in a site file is written into each run, for the report."""

import json

import pytest
from batch_fakes import Fake, wait_until_over

from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.submit import Options, submit
from hpcbench.contract.run import load
from hpcbench.errors import UserError


def test_the_peak_of_the_site_is_written_into_each_run(fake: Fake) -> None:
    fake.write_site(node={"cores": 4, "gpu_peak_tflops": {"bf16": 247.5, "fp32": 20}})
    root = submit(fake.study, Options(site=str(fake.site), only="scheme=baseline")).root
    wait_until_over(root)
    path = root / "runs" / "r1-baseline" / "run.json"
    assert json.loads(path.read_text())["peak_tflops"] == {"bf16": 247.5, "fp32": 20.0}
    assert load(path)[0].peak_tflops == {"bf16": 247.5, "fp32": 20.0}, "the worker accepts it"


@pytest.mark.parametrize("peak", [{"fp12": 1.0}, {"bf16": 0}, {"bf16": "many"}])
def test_an_invalid_peak_is_refused(fake: Fake, peak: dict[str, object]) -> None:
    fake.write_site(node={"cores": 4, "gpu_peak_tflops": peak})
    with pytest.raises(UserError) as caught:
        load_site(str(fake.site))
    assert str(caught.value).startswith(f"{fake.site}:1: node.gpu_peak_tflops.{next(iter(peak))}: ")
