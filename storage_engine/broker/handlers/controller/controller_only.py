"""Requests that only the controller answers."""

from storage_engine.broker.controller.acting_controller import ActingController
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.core.errors import ErrorCode, KafkaError


def acting_controller(controller: ControllerRunner) -> ActingController:
    """Raises KafkaError NOT_CONTROLLER on every other broker, and while the controller loads."""
    acting = controller.acting
    if acting is None or not acting.loaded:
        raise KafkaError(
            f"broker {controller.broker_id} is not the controller", ErrorCode.NOT_CONTROLLER
        )
    return acting
