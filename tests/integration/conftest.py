import pytest

import harness


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return harness.synth(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def small_jobs(tmp_path_factory):
    """The configuration of a small job with data, by task."""
    return {task: job.make(tmp_path_factory.mktemp(task)) for task, job in harness.SMALL_JOBS.items()}


@pytest.fixture(params=harness.every_task(quick="language_model"))
def small_job(request, small_jobs):
    return small_jobs[request.param]
