"""`headrace acls`: which rules the options mean, and what is asked for when they mean none."""

import json
from typing import Any

import pytest

from storage_engine.core.security.acl_rules import (
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from storage_engine.protocol.messages.create_acls import CreateAclsResponse
from storage_engine.protocol.messages.delete_acls import DeleteAclsResponse
from storage_engine.protocol.messages.describe_acls import DescribeAclsResponse
from storage_engine.tools.cli import main


def text_of(member: Any) -> str:
    return str(member.text)


class Rules:
    """Brokers that take every rule and have one; and what they were asked for."""

    def __init__(self, fake) -> None:
        self.bootstrap_server = fake.bootstrap_servers
        self.requests: list[Any] = []
        fake.admin = self._answer

    def _answer(self, _broker, api, request):
        self.requests.append(request)
        if api == "CreateAcls":
            made = CreateAclsResponse.AclCreationResult
            return CreateAclsResponse(results=[made(error_code=0) for _ in request.creations])
        if api == "DeleteAcls":
            row = DeleteAclsResponse.DeleteAclsFilterResult
            none = [row(error_code=0, matching_acls=[]) for _ in request.filters]
            return DeleteAclsResponse(filter_results=none)
        resource = DescribeAclsResponse.DescribeAclsResource
        rule = resource.AclDescription(
            principal="User:app",
            host="*",
            operation=int(AclOperation.READ),
            permission_type=int(AclPermission.ALLOW),
        )
        found = resource(
            resource_type=int(ResourceType.TOPIC),
            resource_name="orders",
            pattern_type=int(PatternType.PREFIXED),
            acls=[rule],
        )
        return DescribeAclsResponse(error_code=0, resources=[found])

    def run(self, action: str, *arguments: str) -> int:
        return main(["acls", action, "--bootstrap-server", self.bootstrap_server, *arguments])

    def created(self) -> set[tuple[str, str, str, str]]:
        (request,) = self.requests
        return {
            (
                text_of(AclPermission.coded(row.permission_type)),
                row.principal,
                text_of(AclOperation.coded(row.operation)),
                f"{text_of(ResourceType.coded(row.resource_type))} {row.resource_name}",
            )
            for row in request.creations
        }


@pytest.fixture
def rules(fake) -> Rules:
    return Rules(fake)


def test_a_producer_and_a_consumer_get_what_they_need_of_each_resource(rules):
    given = ("--producer", "--consumer", "--topic", "orders", "--group", "billing")
    assert rules.run("add", "--allow", "User:app", *given) == 0
    app = ("Allow", "User:app")
    assert rules.created() == {
        (*app, "Write", "Topic orders"),
        (*app, "Read", "Topic orders"),
        (*app, "Describe", "Topic orders"),
        (*app, "Create", "Topic orders"),
        (*app, "Read", "Group billing"),
    }


def test_each_principal_host_and_operation_has_a_rule_of_its_own(rules):
    who = ("--allow", "User:a", "--deny", "User:b", "--host", "10.0.0.1", "--host", "10.0.0.2")
    assert rules.run("add", *who, "--operation", "Read", "--topic", "pay", "--prefixed") == 0
    (request,) = rules.requests
    assert len(request.creations) == 4
    assert {row.resource_pattern_type for row in request.creations} == {int(PatternType.PREFIXED)}
    assert {row.host for row in request.creations} == {"10.0.0.1", "10.0.0.2"}
    assert {each[:2] for each in rules.created()} == {("Allow", "User:a"), ("Deny", "User:b")}


def test_rules_are_shown_and_told_as_json(rules, capsys):
    assert rules.run("list", "--topic", "orders") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "Allow", "User:app", "Read", "Topic", "orders…", "*",
    ]  # fmt: skip
    assert rules.run("list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["resource_name"], row["pattern_type"]) == ("orders", "Prefixed")


def test_everything_is_removed_only_with_all(rules, capsys):
    assert rules.run("remove") == 2
    assert "give a resource, --principal, or --all" in capsys.readouterr().err
    assert rules.requests == []
    assert rules.run("remove", "--all") == 0
    assert capsys.readouterr().out == "no rule is found\n"


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["--allow", "User:app", "--producer"], "no resource is given"),
        (["--topic", "t", "--producer"], "no principal is given"),
        (["--topic", "t", "--allow", "User:app"], "no operation is given"),
        (["--cluster", "--allow", "User:app", "--producer"], "no operation is given"),
    ],
)
def test_a_rule_that_lacks_a_part_is_wrong_usage(rules, capsys, arguments, question):
    assert rules.run("add", *arguments) == 2
    assert question in capsys.readouterr().err
    assert rules.requests == []


@pytest.mark.parametrize("option", ["--allow", "--deny"])
def test_a_principal_of_another_form_is_told_with_its_option(rules, capsys, option):
    assert rules.run("add", option, "app", "--producer", "--topic", "t") != 0
    assert option in capsys.readouterr().err


def test_the_rules_of_another_cluster_are_copied_by_their_kinds(rules, capsys):
    """The same brokers are both clusters here; theirs is one rule of a prefix of topics."""
    assert rules.run("copy", "--source", rules.bootstrap_server) == 0
    *asked, created = rules.requests
    kinds = {each.resource_type_filter for each in asked}
    assert kinds == {2, 3, 4, 5}, "topics, groups, the cluster, transactional ids"
    (rule,) = created.creations
    assert (rule.resource_name, rule.resource_pattern_type) == ("orders", PatternType.PREFIXED)
    assert (rule.principal, rule.host) == ("User:app", "*")
    assert (rule.operation, rule.permission_type) == (AclOperation.READ, AclPermission.ALLOW)
    assert capsys.readouterr().out.endswith("rules copied: 1\n")
