"""What `headrace up --secure` chooses, without the libraries that it takes to make it."""

from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.tools.local.cluster_file import ClusterSecurity

PROTOCOL = "SASL_SSL"
MECHANISM = ScramMechanism.SHA_512
ADMIN, APP = "admin", "app"
TLS_FOLDER = "tls"
CA_FILE = "ca.pem"

SECURITY = ClusterSecurity(
    protocol=PROTOCOL,
    mechanism=MECHANISM.value,
    ca=f"{TLS_FOLDER}/{CA_FILE}",
    admin=f"{ADMIN}.properties",
    app=f"{APP}.properties",
)
