"""Variables that a submission inherits from the shell."""

import pytest

from hpcbench.batch.schedulers.clean_environment import clean_environment, plain_environment, settings_left_out


@pytest.mark.parametrize(
    "name",
    [
        *("SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_NTASKS", "SBATCH_PARTITION", "SRUN_DEBUG", "SALLOC_ACCOUNT"),
        *("LSB_JOBID", "LSB_HOSTS", "LSF_LOGDIR", "LS_JOBPID", "LS_SUBCWD", "JSM_NAMESPACE_RANK"),
        *("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "PRTE_LAUNCHED", "FLUX_URI", "FLUX_JOB_ID"),
        *("PALS_RANKID", "HYDRA_BOOTSTRAP", "HYDI_CONTROL_FD", "MPI_LOCALNRANKS", "PBS_JOBID"),
    ],
)
def test_a_job_s_variables_are_dropped(name: str) -> None:
    assert clean_environment({name: "x", "HOME": "/h"}) == {"HOME": "/h"}


@pytest.mark.parametrize(
    "name",
    [
        *("SLURM_CONF", "SLURM_CLUSTERS", "LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR"),
        *("LS_COLORS", "PATH", "LD_LIBRARY_PATH", "SLURMY", "MPICH_GPU_SUPPORT_ENABLED"),
    ],
)
def test_configuration_is_kept(name: str) -> None:
    assert clean_environment({name: "x"}) == {name: "x"}


def test_more_is_kept_on_request() -> None:
    assert clean_environment({"FLUX_URI": "x", "FLUX_JOB_ID": "y"}, keep=["FLUX_URI"]) == {"FLUX_URI": "x"}


def test_the_process_s_own_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    environment = plain_environment()
    assert "SLURM_JOB_ID" not in environment
    assert (environment["LC_ALL"], environment["TZ"]) == ("C", "UTC")
    monkeypatch.delenv("SLURM_JOB_ID")  # this fails if the variable was removed from the process


def test_settings_of_the_shell_that_jobs_do_not_get_are_named() -> None:
    shell = {"OMPI_MCA_coll": "x", "PMIX_MCA_a": "1", "OMPI_DIR": "/opt", "OMPI_MCA_btl": "y", "PATH": "/bin"}
    assert settings_left_out(shell, {"OMPI_MCA_btl": "y"}) == ["OMPI_MCA_coll", "PMIX_MCA_a"]
    assert settings_left_out({**shell, "PMIX_RANK": "0"}, {}) == []
