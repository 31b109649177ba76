"""The group coordinator as a pure state machine: the members of groups and their committed
offsets."""
