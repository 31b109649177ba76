"""The data of `headrace top`: the brokers' metrics, and rates of two readings."""
