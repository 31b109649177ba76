"""`bootstrap.servers`: host:port, separated by commas."""

from storage_engine.core.errors import ConfigError

Address = tuple[str, int]


def parse_addresses(bootstrap_servers: str) -> list[Address]:
    """ConfigError for a list that is empty or has something else than host:port in it."""
    texts = [text.strip() for text in bootstrap_servers.split(",")]
    addresses = [_parse(text) for text in texts if text]
    if not addresses:
        raise ConfigError("bootstrap.servers is empty; give host:port of one broker at least")
    return list(dict.fromkeys(addresses))


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(
            f"bootstrap.servers has '{text}', which is not host:port; give for example "
            "localhost:9092"
        )
    return host, int(port)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
