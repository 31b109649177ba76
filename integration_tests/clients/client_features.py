"""Which clients of others were seen to do what, by which test: the table in docs/clients.md."""

CLIENTS = (
    "librdkafka (confluent-kafka 2.x)",
    "Java client 3.9, 4.1",
    "kafka-python 3.0",
    "aiokafka 0.14",
    "kcat 1.7",
)
_RDKAFKA, _JAVA, _PYTHON, _AIO, _KCAT = CLIENTS

_JAVA_TEST = "clients/test_java_clients.py::test_java_"
_AIO_TEST = "clients/test_aiokafka.py::test_aiokafka_"
_KCAT_TEST = "clients/test_kcat.py::test_"
_GROUPS = "groups/test_consumer_groups.py::test_"
_OTHERS = "clients/test_foreign_clients_read_what_others_wrote.py::test_"
_SETTINGS = "controller/test_settings_change_at_run_time.py::test_"
_ALL_COMPRESSED = f"{_AIO_TEST}writes_every_compression_and_reads_it_in_a_group"
_COPIES = "consumes_transforms_and_produces_in_transactions"
_COPYING = "transactions/test_consume_transform_produce.py::test_"
_TRANSACTIONS = "transactions/test_transactions.py::test_"
_WHOLE = f"{_TRANSACTIONS}readers_of_committed_records_see_whole_transactions_and_nothing_else"
_OWN_SETTING = f"{_SETTINGS}a_brokers_own_setting_counts_for_it_alone_and_says_where_it_comes_from"
_EVERY_WAY = "security/clients/test_clients_by_every_way.py::test_"
_BY_EVERY_WAY = {
    _RDKAFKA: f"{_EVERY_WAY}librdkafka",
    _JAVA: f"{_EVERY_WAY}java",
    _PYTHON: f"{_EVERY_WAY}kafka_python",
    _AIO: f"{_EVERY_WAY}aiokafka",
    _KCAT: f"{_EVERY_WAY}kcat",
}

SEEN = {
    "produce and consume: gzip, snappy, lz4, zstd": {
        _RDKAFKA: f"{_OTHERS}kafka_python_reads_what_librdkafka_wrote",
        _JAVA: f"{_JAVA_TEST}writes_and_reads_with_every_compression",
        _PYTHON: f"{_OTHERS}librdkafka_reads_what_kafka_python_wrote",
        _AIO: _ALL_COMPRESSED,
        _KCAT: f"{_KCAT_TEST}what_kcat_writes_it_reads_again",
    },
    "groups: offsets are committed, and reading continues there": {
        _RDKAFKA: f"{_GROUPS}members_share_the_partitions_as_they_come_and_go",
        _JAVA: f"{_JAVA_TEST}consumes_transforms_and_produces_in_transactions",
        _PYTHON: f"{_GROUPS}members_share_the_partitions_as_they_come_and_go",
        _AIO: _ALL_COMPRESSED,
        _KCAT: f"{_KCAT_TEST}kcat_reads_as_a_member_of_a_group_and_goes_on_where_it_stopped",
    },
    "groups: partitions shared by members that come and go": {
        _RDKAFKA: f"{_GROUPS}members_share_the_partitions_as_they_come_and_go",
        _JAVA: f"{_JAVA_TEST}members_share_the_partitions_and_take_over_what_one_leaves",
        _PYTHON: f"{_GROUPS}members_share_the_partitions_as_they_come_and_go",
        _AIO: f"{_GROUPS}members_share_the_partitions_as_they_come_and_go",
        _KCAT: f"{_KCAT_TEST}kcats_share_the_partitions_and_take_over_what_a_killed_one_had",
    },
    "groups: a member that is killed is replaced": {
        _RDKAFKA: f"{_GROUPS}a_member_that_is_killed_is_replaced_after_its_session",
        _PYTHON: f"{_GROUPS}a_member_that_is_killed_is_replaced_after_its_session",
        _AIO: f"{_GROUPS}a_member_that_is_killed_is_replaced_after_its_session",
        _KCAT: f"{_KCAT_TEST}kcats_share_the_partitions_and_take_over_what_a_killed_one_had",
    },
    "groups: static members": {
        _RDKAFKA: f"{_GROUPS}a_static_member_that_is_started_again_disturbs_nobody",
        _JAVA: f"{_JAVA_TEST}starts_a_static_member_again_and_disturbs_nobody",
        _PYTHON: f"{_GROUPS}a_static_member_that_is_started_again_disturbs_nobody",
        _AIO: f"{_GROUPS}a_static_member_that_is_started_again_disturbs_nobody",
    },
    "transactions, `read_committed`": {
        _RDKAFKA: _WHOLE,
        _JAVA: f"{_JAVA_TEST}{_COPIES}",
        _PYTHON: _WHOLE,
        _AIO: f"{_AIO_TEST}{_COPIES}",
        _KCAT: f"{_KCAT_TEST}kcat_writes_in_a_transaction_and_lists_the_cluster",
    },
    "consume, transform, produce: offsets in the transaction": {
        _RDKAFKA: f"{_COPYING}output_and_offsets_are_committed_together_or_not_at_all",
        _JAVA: f"{_JAVA_TEST}{_COPIES}",
        _PYTHON: f"{_COPYING}kafka_python_commits_output_and_offsets_together_or_not_at_all",
        _AIO: f"{_AIO_TEST}{_COPIES}",
    },
    "administration of topics and settings": {
        _RDKAFKA: _OWN_SETTING,
        _JAVA: f"{_JAVA_TEST}creates_describes_and_deletes_topics",
        _PYTHON: f"{_SETTINGS}another_client_alters_and_describes",
        _AIO: f"{_AIO_TEST}administers_topics_and_settings",
    },
    "TLS and mTLS, log-ins by SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN": _BY_EVERY_WAY,
    "log-ins by OAUTHBEARER": {
        client: test for client, test in _BY_EVERY_WAY.items() if client != _KCAT
    },
    "refusals: wrong password; unknown authority, other host name, expired certificate": (
        _BY_EVERY_WAY
    ),
}
"""Feature -> client -> the test, below integration_tests/."""


def table() -> str:
    """As Markdown: `yes` where a test has seen it, `-` where none looks."""
    lines = [
        f"| | {' | '.join(CLIENTS)} |",
        f"|---|{'---|' * len(CLIENTS)}",
    ]
    for feature, seen in SEEN.items():
        cells = " | ".join("yes" if client in seen else "-" for client in CLIENTS)
        lines.append(f"| {feature} | {cells} |")
    return "\n".join(lines)
