"""The largest requests and states that clients may send and leave."""
