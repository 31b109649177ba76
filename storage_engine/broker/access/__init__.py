"""The access rules of the cluster, read, watched and changed in ZooKeeper; the log of refusals."""
