"""The messages of Kafka's APIs, which `.ci/messages.py` writes from Kafka's schemas."""
