"""Whole clusters of real brokers over a simulated clock, network, disk and ZooKeeper, seeded."""
