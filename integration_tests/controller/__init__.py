"""The controller, reassignment, settings at run time, and ZooKeeper in trouble."""
