"""The znodes that are there in every cluster, for others to lie below them. Source: R-CTL10."""

from storage_engine.zookeeper.znodes.broker_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

PERSISTENT_PATHS = (
    BrokerIdZNode.PARENT,
    TopicZNode.PARENT,
    ConfigZNode.TOPICS,
    ConfigZNode.BROKERS,
    "/config/changes",
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/admin",
    "/consumers",
)
"""Created, with their parents, by whichever broker comes first.

Below /admin a node exists only while its request does.
"""
