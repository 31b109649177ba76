"""Who is elected, and how registries tell each other, in Confluent's JSON."""

import json

import pytest

from headrace_registry.election.identity import (
    DUPLICATE_URLS,
    Identity,
    decode_elected,
    decode_identity,
    elect,
    encode_identity,
)
from storage_engine.core.schemas.registry.records import ForeignRecordError


def identity(host: str, **more: bool) -> Identity:
    return Identity(host=host, port=8081, **more)


def test_the_first_url_is_elected_where_nobody_writes() -> None:
    found = elect({"m-1": identity("b"), "m-2": identity("a"), "m-3": identity("c")})
    assert (found.member_id, found.writer) == ("m-2", identity("a"))


def test_who_writes_stays_the_writer() -> None:
    found = elect({"m-1": identity("b", is_writer=True), "m-2": identity("a")})
    assert found.member_id == "m-1"


def test_of_two_that_say_that_they_write_the_first_url_is_elected() -> None:
    members = {"m-1": identity("b", is_writer=True), "m-2": identity("a", is_writer=True)}
    assert elect(members).member_id == "m-2"


def test_who_may_not_write_is_not_elected() -> None:
    members = {"m-1": identity("b"), "m-2": identity("a", may_write=False)}
    assert elect(members).member_id == "m-1"
    nobody = elect({"m-2": identity("a", may_write=False)})
    assert (nobody.member_id, decode_elected(nobody.encode()).writer) == (None, None)


def test_two_of_one_address_are_told() -> None:
    assert elect({"m-1": identity("a"), "m-2": identity("a")}).error == DUPLICATE_URLS


def test_identities_are_confluents() -> None:
    written = encode_identity(Identity(host="h", port=1, scheme="https"))
    assert json.loads(written) == {
        "version": 1,
        "host": "h",
        "port": 1,
        "master_eligibility": True,
        "scheme": "https",
        "leader": False,
    }
    theirs = b'{"version":1,"host":"h","port":1,"master_eligibility":true,"new":[]}'
    assert decode_identity(theirs) == Identity(host="h", port=1)
    elected = elect({"sr-1": identity("a")})
    assert decode_elected(elected.encode()) == elected
    theirs = (
        b'{"error":0,"version":1,"master":"sr-1","master_identity":'
        b'{"version":1,"host":"a","port":8081,"master_eligibility":true,"scheme":"http"}}'
    )
    assert decode_elected(theirs) == elected


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"host":1,"port":1}', b"\xff"])
def test_a_strangers_metadata_is_refused(data) -> None:
    with pytest.raises(ForeignRecordError):
        decode_identity(data)
