"""The same scenarios run on both API servers."""

import pytest

from servers import memory_api, real_api


def pytest_addoption(parser):
    parser.addoption("--write-pod-fields", action="store_true", help="write operator/api/pod_fields_table.cc instead of comparing it")


@pytest.fixture(scope="module", params=["memory", "kubernetes"])
def api(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    made = None
    try:
        made = real_api(folder) if request.param == "kubernetes" else memory_api(folder)
        made.start_operator()
        yield made
    finally:
        if made:
            made.processes.stop_all()
