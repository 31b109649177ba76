"""ZooKeeper: the znodes and their JSON, the session, the controller's election, and an embedded server.

Rule: paths, JSON, znode versions and kazoo stay in this package; what leaves it are the values of `core.ports`.
"""
