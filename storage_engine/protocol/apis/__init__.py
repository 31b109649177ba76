"""The codecs of the APIs, and the messages that are not in `protocol.messages`, one file per API.

A module is imported when its API is first used (`registry.spec_for`), so that a Spark worker pays
only for what it needs. Source: the Kafka protocol, https://kafka.apache.org/protocol.
"""
