"""What a simulated broker learns of the ports of others."""

from collections.abc import Callable

from simulation.world.clock import ProcessLoop
from simulation.world.network import BASE_PORT, SimulatedNetwork
from storage_engine.core.ports import Endpoint, PortAnswer


class SimulatedPeerPorts:
    """`core.ports.PeerPorts` of one life of a broker."""

    def __init__(self, network: SimulatedNetwork, sender: int, owner: ProcessLoop) -> None:
        self._network = network
        self._sender = sender
        self._owner = owner

    def on_closed(self, listener: Callable[[Endpoint], None]) -> None:
        def closed(receiver: int) -> None:
            port = BASE_PORT + receiver
            listener(Endpoint(broker_id=receiver, host="simulated", port=port))

        self._network.on_closed[self._sender] = closed

    def probe(self, endpoint: Endpoint, on_done: Callable[[PortAnswer], None]) -> None:
        network = self._network

        def arrive() -> None:
            answer = network.answer_of(self._sender, endpoint.broker_id)
            self._owner.deliver_later(network.delay_ms(), lambda: on_done(answer))

        network.loop.call_later(network.delay_ms(), arrive)
