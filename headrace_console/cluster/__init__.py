"""The console's access to the brokers. Every call is bounded, and reports silent brokers."""
