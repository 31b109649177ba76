"""The replicas on this broker: roles, appends, replication, and what a failed disk takes."""
