"""Consumer groups, by the broker and by ZooKeeper."""
