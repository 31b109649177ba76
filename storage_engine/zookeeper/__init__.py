"""ZooKeeper: znodes and their JSON, the session, the controller's election, an embedded server.

Rule: paths, JSON, znode versions and kazoo stay in this package; other packages see the values of
`core.ports`.
"""
