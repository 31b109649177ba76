"""What brokers are asked: settings of topics, facts about logs, and records as Arrow tables."""
