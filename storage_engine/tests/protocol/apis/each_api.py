"""A test of each API, which goes through its versions: a test for each of them would cost more than
what it does.
"""

import itertools
from collections.abc import Callable, Collection

import pytest

from storage_engine.protocol.apis.registry import name_of

Case = tuple[int, int, str]
"""Key, version, "request" or "response"."""


def in_each_version(cases: Collection[Case]) -> Callable[[Callable[[int, int, str], None]], object]:
    """Makes a test of one of the cases one of all of an API's. A failure names its case."""
    of_apis = {
        name_of(key): list(those)
        for key, those in itertools.groupby(sorted(cases), key=lambda case: case[0])
    }

    def decorate(test: Callable[[int, int, str], None]) -> object:
        @pytest.mark.parametrize("api", of_apis)
        def of_api(api: str) -> None:
            for key, version, kind in of_apis[api]:
                try:
                    test(key, version, kind)
                except BaseException as error:
                    error.add_note(f"{api}, the {kind} of version {version}")
                    raise

        of_api.__name__ = test.__name__
        of_api.__doc__ = test.__doc__
        return of_api

    return decorate
