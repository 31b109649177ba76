"""A world in memory for the broker: what it promises is tested in it, one seed after the other."""
