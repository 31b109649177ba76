"""The replicas on this broker: roles, appends, replication, and failed disks."""
