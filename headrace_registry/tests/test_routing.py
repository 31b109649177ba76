"""Paths by their parts, each decoded by itself."""

import pytest

from headrace_registry.http.application import ROUTES
from headrace_registry.http.calls import QueryParams
from headrace_registry.http.routing import page
from storage_engine.core.schemas.registry.registry_error import RegistryError


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/subjects/a%2Fb%2Fc/versions/1", {"subject": "a/b/c", "version": "1"}),
        ("/subjects/%C3%BC%20%3F/versions/latest/", {"subject": "ü ?", "version": "latest"}),
        ("/schemas/ids/7", {"id": "7"}),
        ("/config/%3A.%3A", {"subject": ":.:"}),
        ("/", {}),
    ],
)
def test_a_part_of_a_path_may_have_encoded_slashes(path, values) -> None:
    assert ROUTES.find("GET", path).path == values


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/subjects/a/b/versions", 404),
        ("GET", "/schemas/ids", 404),
        ("PATCH", "/subjects", 405),
        ("POST", "/config", 405),
        ("GET", "/subjects/%ff", 400),
    ],
)
def test_what_is_not_served_is_told(method, path, code) -> None:
    with pytest.raises(RegistryError) as caught:
        ROUTES.find(method, path)
    assert caught.value.code == code


def test_parameters_have_their_types() -> None:
    params = QueryParams(values={"deleted": "True", "limit": "2", "permanent": "false", "bad": "x"})
    assert params.flag("deleted")
    assert not params.flag("permanent")
    assert params.flag("defaultToGlobal", True)
    assert (params.number("limit", -1), params.number("offset", 0)) == (2, 0)
    with pytest.raises(RegistryError, match="bad"):
        params.number("bad", 0)
    assert page([1, 2, 3], params) == [1, 2]
    assert page([1, 2, 3], QueryParams(values={"offset": "1", "limit": "-1"})) == [2, 3]
    with pytest.raises(RegistryError, match="negative"):
        page([1], QueryParams(values={"offset": "-1"}))
