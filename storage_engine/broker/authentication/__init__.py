"""Log-ins by SASL: what stands before the dispatcher on listeners that ask for one."""
