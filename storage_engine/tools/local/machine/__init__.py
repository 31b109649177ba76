"""The brokers of one machine: a broker for each core, laid out, started, stopped and restarted."""
