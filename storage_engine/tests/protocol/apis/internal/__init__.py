"""Tests of the messages that brokers send each other."""
