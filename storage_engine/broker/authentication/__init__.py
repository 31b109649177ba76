"""Log-ins by SASL, before the dispatcher, on listeners that require one."""
