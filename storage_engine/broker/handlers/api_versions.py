"""ApiVersions: the APIs that this broker serves, the levels of features that it supports, and those
that the cluster uses.

An API that needs a level of a feature is told to clients from that level on. Source: KIP-584.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from storage_engine.broker.handlers.api_call import ApiCall, HandlerTable
from storage_engine.core.features import SUPPORTED, FinalizedFeatures
from storage_engine.protocol.apis import api_versions
from storage_engine.protocol.apis.registry import OWN_RANGES, SERVED_RANGES, is_offered
from storage_engine.protocol.apis.spec import VersionRange


class ApiVersionsHandler:
    """Answers ApiVersions; the answers are made once for each change of levels."""

    def __init__(self, table: HandlerTable, finalized: Callable[[], FinalizedFeatures]) -> None:
        self._table = table
        self._finalized = finalized
        self._answered: FinalizedFeatures | None = None
        """The levels that the answers tell."""
        self._answers: dict[bool, api_versions.ApiVersionsResponse] = {}
        """By whether the client can read level 0 as the lowest of a feature."""

    @property
    def advertised(self) -> Mapping[int, VersionRange]:
        """The APIs that clients are told, with their versions."""
        level = self._finalized().level
        return {
            key: versions
            for key, versions in {**SERVED_RANGES, **OWN_RANGES}.items()
            if self._table.get(key) is not None and is_offered(key, level)
        }

    def handle(
        self,
        call: ApiCall[api_versions.ApiVersionsResponse],
        _request: api_versions.ApiVersionsRequest,
    ) -> None:
        finalized = self._finalized()
        if finalized is not self._answered:
            self._answers.clear()
            self._answered = finalized
        reads_level_0 = call.version >= api_versions.FIRST_WITH_LEVEL_0
        if reads_level_0 not in self._answers:
            self._answers[reads_level_0] = self._answer(finalized, reads_level_0=reads_level_0)
        call.respond(self._answers[reads_level_0])

    def _answer(
        self, finalized: FinalizedFeatures, *, reads_level_0: bool
    ) -> api_versions.ApiVersionsResponse:
        levels = {name: finalized.level(name) for name in sorted(SUPPORTED)}
        return replace(
            api_versions.ApiVersionsResponse.of(self.advertised),
            supported_features=[
                api_versions.Feature(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest) in sorted(SUPPORTED.items())
                if lowest or reads_level_0
            ],
            finalized_features=[
                api_versions.FinalizedFeature(name=name, min_version=level, max_version=level)
                for name, level in levels.items()
                if level
            ],
            finalized_features_epoch=finalized.epoch,
        )
