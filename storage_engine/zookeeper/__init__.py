"""ZooKeeper: znodes and their JSON, the session, the controller's election, an embedded server.

Paths, JSON, znode versions and kazoo stay in this package; other packages see the values of
`core.ports`.
"""
