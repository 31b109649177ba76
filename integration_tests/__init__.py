"""Real ZooKeeper, real brokers, real Spark, real clients: one file per promise."""
