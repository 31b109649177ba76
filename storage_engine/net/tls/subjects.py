"""The subject of a certificate as Kafka writes it: RFC 2253, with Java's names of attributes.

    CN=app,OU=Data,O=Example,C=DE      the last attribute of the certificate first
    1.2.840.113549.1.9.1=#16036140...  an attribute without a short name: its bytes in DER

Super users, ACLs and mapping rules of a cluster that has run on Kafka's brokers go on to fit.
Source: RFC 2253; javax.security.auth.x500.X500Principal.getName().
"""

import re

SUBJECT_MAX_CHARACTERS = 4096
"""The longest subject that is looked at: mapping rules are regular expressions."""

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SPECIAL = re.compile(r'([,+"\\<>;])')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER; empty when it has none, or one that is too long.
    ValueError for what is no certificate."""
    from cryptography import x509

    subject = x509.load_der_x509_certificate(certificate).subject
    text = ",".join(
        "+".join(_attribute(x509.Name([each]), each) for each in rdn)
        for rdn in reversed(list(subject.rdns))
    )
    return text if len(text) <= SUBJECT_MAX_CHARACTERS else ""


def _attribute(alone: object, attribute: object) -> str:
    oid: str = attribute.oid.dotted_string  # type: ignore[attr-defined]
    name = _SHORT_NAMES.get(oid)
    value = attribute.value  # type: ignore[attr-defined]
    if name is None or not isinstance(value, str):
        encoded: bytes = alone.public_bytes()  # type: ignore[attr-defined]
        return f"{oid}=#{_value_of(encoded).hex()}"
    return f"{name}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text


def _value_of(name: bytes) -> bytes:
    """The value within a name of one attribute: name { set { attribute { id, value } } }."""
    for _ in range(3):
        name = _content(name)[0]
    return _content(name)[1]


def _content(der: bytes) -> tuple[bytes, bytes]:
    """What the first element of `der` holds, and what follows it."""
    size, start = der[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[2:start], "big")
    return der[start : start + size], der[start + size :]
