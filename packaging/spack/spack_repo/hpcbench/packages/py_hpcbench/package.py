"""Recipe for Spack: docs/how-to/packages.md. Tests compare its dependencies with pyproject.toml."""

import os

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpcbench(PythonPackage):
    """Compressed collectives for LLM training, measured against the uncompressed baseline."""

    # `make dist` writes the archive; Spack looks for it in the directory in which it is called
    manual_download = True
    url = f"file://{os.getcwd()}/dist/hpcbench-1.0.0.tar.gz"

    license("BSD-3-Clause")

    version("1.0.0")

    variant("train", default=True, description="PyTorch and MPI for the jobs; a login node needs neither")
    variant("report", default=True, description="figures in reports")

    depends_on("cxx", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.10:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.10:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-ijson@3.3:")
        depends_on("py-pydantic@2.9:")
        depends_on("py-rich@13.7:")
        depends_on("py-ruamel-yaml@0.18:")
        depends_on("py-scipy@1.11:")
        depends_on("py-submitit@1.5")
        depends_on("py-typer@0.12:")

        with when("+train"):
            depends_on("py-torch@2.5:")
            depends_on("py-mpi4py@4:")
            depends_on("py-numpy@1.26:")
            depends_on("py-ml-dtypes@0.4:")
            depends_on("py-nvidia-ml-py@12:")
            depends_on("py-xxhash@3:")

        depends_on("py-matplotlib@3.8:", when="+report")
