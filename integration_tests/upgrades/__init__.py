"""What users have goes on through upgrades and back: each feature in each scenario."""
