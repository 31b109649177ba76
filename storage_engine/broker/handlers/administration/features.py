"""UpdateFeatures, which the controller serves: raises and lowers the levels of features, all that a
request names or none.

The answer comes when the levels are written, and this broker knows them; the others learn of them
by their watches. Versions: 1 validate only, and the direction of an update. 2 no results in the
answer. Source: KIP-584, KIP-1022.
"""

from collections.abc import Generator
from dataclasses import dataclass

from storage_engine.broker.cluster.cluster_features import ClusterFeatures
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.orders import acting_controller
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import FeatureUpdate, UpgradeType
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

LONGEST_WAIT_MS = 120_000
"""The longest timeout of a request; a longer one is shortened to this."""

FIRST_WITH_UPGRADE_TYPE = 1
FIRST_WITHOUT_RESULTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesHandler:
    """Answers UpdateFeatures."""

    controller: ControllerRunner
    features: ClusterFeatures
    scheduler: Scheduler

    def handle(
        self, call: ApiCall[UpdateFeaturesResponse], request: UpdateFeaturesRequest
    ) -> Steps:
        updates = yield from _updates(call.version, request)
        try:
            # Another broker may be the controller since the first step.
            acting = acting_controller(self.controller)
        except KafkaError as failure:
            call.respond(_refusal(failure))
            return

        def answer(failure: KafkaError | None) -> None:
            if deadline.finish():
                call.run(_respond(call, request, failure))

        def on_updated(failure: KafkaError | None) -> None:
            if failure is not None or request.validate_only:
                answer(failure)
            else:
                self.features.refresh(lambda _: answer(None))

        def expire() -> None:
            failure = KafkaError(
                "the time allowed is over: the levels may or may not be changed; describe the "
                "features to see",
                ErrorCode.REQUEST_TIMED_OUT,
            )
            call.run(_respond(call, request, failure))

        wait_ms = max(0, min(request.timeout_ms, LONGEST_WAIT_MS))
        deadline = RequestDeadline(self.scheduler, wait_ms, expire)
        acting.update_features(
            updates,
            on_updated,
            check_allowed=call.check_allowed,
            validate_only=request.validate_only,
        )


def _updates(
    version: int, request: UpdateFeaturesRequest
) -> Generator[None, None, list[FeatureUpdate]]:
    updates = []
    for item in request.feature_updates:
        yield None
        upgrade_type = UpgradeType.of(item.upgrade_type)
        if version < FIRST_WITH_UPGRADE_TYPE:
            lowers = item.allow_downgrade
            upgrade_type = UpgradeType.SAFE_DOWNGRADE if lowers else UpgradeType.UPGRADE
        updates.append(FeatureUpdate(item.feature, item.max_version_level, upgrade_type))
    return updates


def _respond(
    call: ApiCall[UpdateFeaturesResponse],
    request: UpdateFeaturesRequest,
    failure: KafkaError | None,
) -> Steps:
    if failure is not None:
        call.respond(_refusal(failure))
        return
    results = []
    if call.version < FIRST_WITHOUT_RESULTS:
        for item in request.feature_updates:
            yield None
            results.append(
                UpdateFeaturesResponse.UpdatableFeatureResult(
                    feature=item.feature, error_code=0, error_message=None
                )
            )
    call.respond(UpdateFeaturesResponse(error_code=0, error_message=None, results=results))


def _refusal(failure: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=int(failure.code), error_message=str(failure), results=[]
    )
