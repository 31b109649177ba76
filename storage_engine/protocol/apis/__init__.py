"""The messages of the protocol, one file per API: the listing of this folder is the API that is
served.

A module is imported when its API is first used (`registry.spec_for`), so that a Spark worker pays
only for what it needs. Source: the Kafka protocol, https://kafka.apache.org/protocol.
"""

from storage_engine.protocol.apis.lazy_kafka import put_off_clients

# Before the first of them imports its messages from kafka-python.
put_off_clients()
