"""Reads from brokers: settings of topics, facts about logs, and records as Arrow tables."""
