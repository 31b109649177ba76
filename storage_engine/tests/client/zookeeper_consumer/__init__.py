"""Groups that meet in ZooKeeper."""
