"""A secured cluster comes back with its users, rules, quotas and settings, and several machines
restore their brokers one after the other."""

import json

from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.command_line import fail_here, succeed, succeed_here
from storage_engine.tools.cli import main
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "kept"


def said(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


def test_users_rules_quotas_and_settings_come_back(tmp_path, capsys):
    place, password = tmp_path / "place", tmp_path / "password"
    password.write_text("correct horse\n")
    secure = UpRequest(brokers=1, port=0, is_secure=True)
    with LocalCluster.running(tmp_path / "original", secure) as original:
        admin = reached(original, "admin.properties")
        succeed_here("topics", "create", TOPIC, *admin, "--config", "retention.ms=123456789")
        succeed_here("users", "add", "alice", *admin, "--password-file", password)
        succeed_here("acls", "add", "--allow", "User:alice", "--consumer", "--topic", TOPIC,
                     "--group", "g", *admin)  # fmt: skip
        succeed_here("quotas", "add", "--user", "alice", "--producer-byte-rate", 1048576, *admin)
        succeed("produce", TOPIC, *admin, stdin=b"one\n")
        succeed_here("backup", "--to", place, "--dir", original.directory)
        rules, quotas = (said(capsys, each, "list", *admin) for each in ("acls", "quotas"))
    folder = tmp_path / "restored"
    with LocalCluster.running(folder, secure):
        pass
    succeed_here("restore", "--from", place, "--dir", folder)
    with LocalCluster.running(folder) as restored:
        admin = reached(restored, "admin.properties")
        succeed_here("verify", "--from", place, "--dir", folder)
        assert said(capsys, "acls", "list", *admin) == rules
        assert said(capsys, "quotas", "list", *admin) == quotas
        assert "123456789" in said(capsys, "topics", "describe", TOPIC, *admin)
        alice = tmp_path / "alice.properties"
        settings = (folder / "admin.properties").read_text().splitlines()
        kept = [line for line in settings if not line.startswith("sasl.username")]
        kept = [line for line in kept if not line.startswith("sasl.password")]
        kept += ["sasl.username=alice", "sasl.password=correct horse"]
        alice.write_text("\n".join(kept) + "\n")
        where = ("--bootstrap-server", restored.bootstrap_servers, "--command-config", alice)
        reading = ("--group", "g", "--from", "earliest", "--max", 1)
        assert succeed("consume", TOPIC, *where, *reading) == "one\n"


def reached(cluster: LocalCluster, name: str) -> tuple[object, ...]:
    servers = cluster.bootstrap_servers
    return ("--bootstrap-server", servers, "--command-config", cluster.directory / name)


def test_each_machine_restores_its_brokers_and_the_last_one_the_rest(tmp_path, capsys):
    place = tmp_path / "place"
    with running_cluster(tmp_path / "original", brokers=2) as original:
        create_topic(original, TOPIC, partitions=4, replication_factor=2)
        servers = original.bootstrap_servers
        succeed("produce", TOPIC, "--bootstrap-server", servers, stdin=b"one\ntwo\n")
        succeed_here("backup", "--to", place, "--dir", original.directory)
    with running_cluster(tmp_path / "restored", brokers=2) as restored:
        configs = [restored.directory / each.config for each in restored.state.brokers]
        first, second = (
            ("restore", "--from", place, "--brokers", "1,2", "--broker-config", each)
            for each in configs
        )
        capsys.readouterr()
        assert "runs: stop all brokers" in fail_here(capsys, *first)
        for broker in (1, 2):
            restored.stop_broker(broker)
        told = json.loads(said(capsys, *first, "--json"))
        assert told["missing_brokers"] == [2]
        # Once more is no harm.
        assert json.loads(said(capsys, *first, "--json"))["replicas"] == 0
        assert json.loads(said(capsys, *second, "--json"))["missing_brokers"] == []
        for broker in (1, 2):
            restored.start_broker(broker)
        succeed_here("verify", "--from", place, "--dir", restored.directory)
