"""The console's way to the brokers. Every call is bounded, and says which broker did not answer."""
