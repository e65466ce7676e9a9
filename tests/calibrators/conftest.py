"""Other people's implementations, imported only where a test asks for them."""

import warnings

import pytest


@pytest.fixture(scope="session")
def netcal():
    """Import netcal quietly: it and what it pulls in warn on import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("netcal")
        pytest.importorskip("netcal.binning")
        pytest.importorskip("netcal.scaling")
    return module
