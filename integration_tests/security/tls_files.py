"""Certificates in files, as brokers and librdkafka take them."""

import datetime
from pathlib import Path

import trustme

EXPIRED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class TlsFiles:
    """A folder with an authority's certificates."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self.folder = folder
        self.authority = trustme.CA(organization_name=name)
        self.authority_file = str(folder / f"{name}-ca.pem")
        self.authority.cert_pem.write_to_path(self.authority_file)

    def issue(self, file: str, *names: str, expired: bool = False) -> str:
        """A file with key and certificate for those names; it may be there already."""
        until = EXPIRED if expired else None
        issued = self.authority.issue_cert(*names, common_name=names[0], not_after=until)
        path = self.folder / file
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)
