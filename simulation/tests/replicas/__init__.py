"""Cases of replicas whose logs part, built step by step."""
