"""What brokers learn from the controller: orders, in one piece and in parts."""
