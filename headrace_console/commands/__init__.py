"""The commands `headrace console` and `headrace top`."""
