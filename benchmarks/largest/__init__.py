"""The largest requests and states that the protocol and the limits of a broker allow."""
