"""A schema registry, run with the version of the services: ids and versions of subjects stay."""

import json
import urllib.error
import urllib.request

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.registry.registries import RegistryUnderFire
from integration_tests.support.cluster_support import wait_until


class Registries:
    def is_possible(self, cluster: MixedCluster) -> bool:
        return (cluster.services / "headrace_registry").is_dir()

    def initialize(self, cluster: MixedCluster) -> None:
        self._registry = RegistryUnderFire(cluster, cluster.folder, "_schemas")
        self._ids: list[int] = []

    def work(self, cluster: MixedCluster) -> None:
        with _Running(self._registry, cluster):
            path = f"/subjects/subject-{len(self._ids)}/versions"
            self._ids.append(_ask(self._registry.url + path, {"schema": _schema(len(self._ids))}))

    def validate(self, cluster: MixedCluster) -> None:
        with _Running(self._registry, cluster):
            for number, given in enumerate(self._ids):
                with urllib.request.urlopen(f"{self._registry.url}/schemas/ids/{given}") as answer:
                    assert json.load(answer)["schema"] == _schema(number)
        assert len(set(self._ids)) == len(self._ids)

    def close(self) -> None:
        self._registry.kill()


class _Running:
    def __init__(self, registry: RegistryUnderFire, cluster: MixedCluster) -> None:
        registry.code = cluster.services
        self._registry = registry

    def __enter__(self) -> None:
        self._registry.start()

    def __exit__(self, *_: object) -> None:
        self._registry.kill()


def _schema(number: int) -> str:
    field = {"name": f"field{number}", "type": "long"}
    made = {"type": "record", "name": f"Record{number}", "fields": [field]}
    return json.dumps(made, separators=(",", ":"))


def _ask(url: str, body: dict[str, str]) -> int:
    """The id; a registry that has just started may have to wait for its writer."""
    told: list[str] = []

    def is_taken() -> int | None:
        request = urllib.request.Request(
            url,
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request) as answer:
                found: int = json.load(answer)["id"]
        except urllib.error.HTTPError as error:
            assert error.code >= 500, error.read()
            told.append(error.read().decode())
            return None
        return found

    try:
        made = wait_until(is_taken, f"{url} takes a schema")
    except AssertionError as error:
        raise AssertionError(f"{error}: {told[-1:]}") from None
    assert made is not None
    return made
