"""Settings of brokers and topics: from files and from ZooKeeper, at the start and at run time."""
