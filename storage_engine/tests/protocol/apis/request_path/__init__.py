"""Tests of the messages on the request path."""
