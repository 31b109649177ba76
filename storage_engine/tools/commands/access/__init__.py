"""Commands that say who may do what: users, access rules, quotas."""
