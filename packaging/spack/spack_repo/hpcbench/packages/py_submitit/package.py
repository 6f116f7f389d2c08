"""Recipe for Spack, whose own repository has older versions."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PySubmitit(PythonPackage):
    """Python toolbox for submitting jobs to Slurm."""

    homepage = "https://github.com/facebookincubator/submitit"
    pypi = "submitit/submitit-1.5.4.tar.gz"

    license("MIT")

    version("1.5.4", sha256="7100848bd1cdda79c7196e54ee830793ae75fd7adde0c5bef738d72360a07508")

    with default_args(type=("build", "run")):
        depends_on("python@3.8:")
        depends_on("py-cloudpickle@1.2.1:")
        depends_on("py-typing-extensions@3.7.4.2:")
    depends_on("py-flit-core@3.2:3", type="build")
