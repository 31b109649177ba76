"""The ZooKeeper server in PySpark's jars: its Java, its command line, its configuration."""
