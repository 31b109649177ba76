"""Crowds of connections take more descriptors than a login shell grants, often 1,024."""

import resource
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _as_many_descriptors_as_may_be() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
