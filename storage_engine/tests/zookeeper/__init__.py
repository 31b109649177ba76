"""Tests of the ZooKeeper package, against the embedded server."""
