"""The controller that this broker may be: it watches ZooKeeper, decides and gives orders."""
