"""The controller of whole clusters, and what others write into ZooKeeper."""
