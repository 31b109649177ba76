"""How clients prove who they are, and find out whom they talk to: settings, TLS, SASL, tokens."""
