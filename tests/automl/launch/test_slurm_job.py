"""A sweep as a job of a real Slurm; `make test-all` installs one and runs this."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_cluster import missing, slurm_cluster
from slurm_job import STEPS, Job

pytestmark = [
    pytest.mark.skipif("AUTOML_TEST_ALL" not in os.environ, reason="takes minutes: make test-all"),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.timeout(900),
]


def test_a_job_that_is_requeued_in_the_middle_finishes_its_sweep(tmp_path: Path) -> None:
    with slurm_cluster() as environment:
        job = Job(environment, tmp_path, "--nodes", "2", "--time", "1:00:00")
        job.wait_for_steps(STEPS)
        job.requeue()
        job.wait_until_ended()
        assert job.problems() == [], job.log
        assert "run 2 of job" in job.log
        assert "nodes n1 n2" in job.log


def test_a_job_that_slurm_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    with slurm_cluster() as environment:
        job = Job(environment, tmp_path, "--time", "1:00:00", seconds=0.0)
        other = ("--partition", "none")
        refused = job.try_automl("launch", "slurm", "toy.yaml", "--objective", "train.py", *other)
        assert refused.returncode == 1
        assert "Slurm refuses the job" in refused.stderr
        assert "partition" in refused.stderr
        assert "Traceback" not in refused.stderr
