"""Brokers and ZooKeepers on machines of their own, which are namespaces of this one."""
