import pytest

import harness


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return harness.synth(tmp_path_factory.mktemp("data"))
