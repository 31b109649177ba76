"""The handlers of all APIs, each with the parts that it needs; one function a subsystem."""

from functools import partial

from storage_engine.broker.cluster.order_gate import NamedReplicas, Orders
from storage_engine.broker.handlers.administration import (
    alter_replica_log_dirs,
    describe_cluster,
    elections,
    list_config_resources,
    log_dirs,
    reassignments,
    update_features,
)
from storage_engine.broker.handlers.administration.access_rules import AccessRuleHandlers
from storage_engine.broker.handlers.administration.alter_configs import AlterConfigsHandlers
from storage_engine.broker.handlers.administration.client_quotas import ClientQuotasHandlers
from storage_engine.broker.handlers.administration.create_partitions import CreatePartitionsHandler
from storage_engine.broker.handlers.administration.create_topics import CreateTopicsHandler
from storage_engine.broker.handlers.administration.delete_topics import DeleteTopicsHandler
from storage_engine.broker.handlers.administration.describe_configs import DescribeConfigsHandler
from storage_engine.broker.handlers.administration.describe_schemas import DescribeSchemasHandler
from storage_engine.broker.handlers.administration.describe_topic_partitions import (
    DescribeTopicPartitionsHandler,
)
from storage_engine.broker.handlers.administration.metadata import MetadataHandler
from storage_engine.broker.handlers.administration.user_scram_credentials import (
    ScramCredentialHandlers,
)
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.handlers.cluster_for_clients import ClusterForClients
from storage_engine.broker.handlers.controller import controlled_shutdown
from storage_engine.broker.handlers.controller.full_orders import FullOrders
from storage_engine.broker.handlers.controller.leader_and_isr import LeaderAndIsrHandler
from storage_engine.broker.handlers.controller.stop_replica import StopReplicaHandler
from storage_engine.broker.handlers.controller.update_metadata import UpdateMetadataHandler
from storage_engine.broker.handlers.groups.find_coordinator import FindCoordinatorHandler
from storage_engine.broker.handlers.groups.group_admin import GroupAdminHandlers
from storage_engine.broker.handlers.groups.group_members import GroupMemberHandlers
from storage_engine.broker.handlers.groups.group_offsets import GroupOffsetHandlers
from storage_engine.broker.handlers.groups.group_requests import GroupRequests
from storage_engine.broker.handlers.groups.group_transactions import (
    AddOffsetsToTxnHandler,
    TxnOffsetCommitHandler,
)
from storage_engine.broker.handlers.records import list_offsets, offset_for_leader_epoch
from storage_engine.broker.handlers.records.delete_records import DeleteRecordsHandler
from storage_engine.broker.handlers.records.fetch import FetchHandler
from storage_engine.broker.handlers.records.produce import ProduceHandler
from storage_engine.broker.handlers.transactions import (
    describe_producers,
    describe_sinks,
    describe_transactions,
    end_txn,
    init_producer_id,
    write_txn_markers,
)
from storage_engine.broker.handlers.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnHandler,
)
from storage_engine.broker.handlers.transactions.batches import SinkBatchHandlers
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.upkeep.orphaned_logs import OrphanedLogs
from storage_engine.broker.wiring.access import AccessParts
from storage_engine.broker.wiring.cluster import ClusterParts
from storage_engine.broker.wiring.coordinators import CoordinatorParts
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.broker.wiring.replicas import ReplicaParts
from storage_engine.broker.wiring.requests import RequestParts
from storage_engine.broker.wiring.settings import SettingsParts
from storage_engine.protocol.apis.abort_members import API as ABORT_MEMBERS
from storage_engine.protocol.apis.batch_heartbeat import API as BATCH_HEARTBEAT
from storage_engine.protocol.apis.commit_batch import API as COMMIT_BATCH
from storage_engine.protocol.apis.controlled_shutdown import API as CONTROLLED_SHUTDOWN
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_sinks import API as DESCRIBE_SINKS
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.join_batch import API as JOIN_BATCH
from storage_engine.protocol.apis.leader_and_isr import API as LEADER_AND_ISR
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.stop_replica import API as STOP_REPLICA
from storage_engine.protocol.apis.update_metadata import API as UPDATE_METADATA
from storage_engine.protocol.messages.add_offsets_to_txn import API as ADD_OFFSETS_TO_TXN
from storage_engine.protocol.messages.add_partitions_to_txn import API as ADD_PARTITIONS_TO_TXN
from storage_engine.protocol.messages.alter_client_quotas import API as ALTER_CLIENT_QUOTAS
from storage_engine.protocol.messages.alter_configs import API as ALTER_CONFIGS
from storage_engine.protocol.messages.alter_partition_reassignments import (
    API as ALTER_PARTITION_REASSIGNMENTS,
)
from storage_engine.protocol.messages.alter_replica_log_dirs import API as ALTER_REPLICA_LOG_DIRS
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    API as ALTER_USER_SCRAM_CREDENTIALS,
)
from storage_engine.protocol.messages.create_acls import API as CREATE_ACLS
from storage_engine.protocol.messages.create_partitions import API as CREATE_PARTITIONS
from storage_engine.protocol.messages.create_topics import API as CREATE_TOPICS
from storage_engine.protocol.messages.delete_acls import API as DELETE_ACLS
from storage_engine.protocol.messages.delete_groups import API as DELETE_GROUPS
from storage_engine.protocol.messages.delete_records import API as DELETE_RECORDS
from storage_engine.protocol.messages.delete_topics import API as DELETE_TOPICS
from storage_engine.protocol.messages.describe_acls import API as DESCRIBE_ACLS
from storage_engine.protocol.messages.describe_client_quotas import API as DESCRIBE_CLIENT_QUOTAS
from storage_engine.protocol.messages.describe_cluster import API as DESCRIBE_CLUSTER
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_groups import API as DESCRIBE_GROUPS
from storage_engine.protocol.messages.describe_log_dirs import API as DESCRIBE_LOG_DIRS
from storage_engine.protocol.messages.describe_producers import API as DESCRIBE_PRODUCERS
from storage_engine.protocol.messages.describe_topic_partitions import (
    API as DESCRIBE_TOPIC_PARTITIONS,
)
from storage_engine.protocol.messages.describe_transactions import API as DESCRIBE_TRANSACTIONS
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    API as DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from storage_engine.protocol.messages.elect_leaders import API as ELECT_LEADERS
from storage_engine.protocol.messages.end_txn import API as END_TXN
from storage_engine.protocol.messages.find_coordinator import API as FIND_COORDINATOR
from storage_engine.protocol.messages.heartbeat import API as HEARTBEAT
from storage_engine.protocol.messages.incremental_alter_configs import (
    API as INCREMENTAL_ALTER_CONFIGS,
)
from storage_engine.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from storage_engine.protocol.messages.join_group import API as JOIN_GROUP
from storage_engine.protocol.messages.leave_group import API as LEAVE_GROUP
from storage_engine.protocol.messages.list_config_resources import API as LIST_CONFIG_RESOURCES
from storage_engine.protocol.messages.list_groups import API as LIST_GROUPS
from storage_engine.protocol.messages.list_partition_reassignments import (
    API as LIST_PARTITION_REASSIGNMENTS,
)
from storage_engine.protocol.messages.list_transactions import API as LIST_TRANSACTIONS
from storage_engine.protocol.messages.offset_commit import API as OFFSET_COMMIT
from storage_engine.protocol.messages.offset_delete import API as OFFSET_DELETE
from storage_engine.protocol.messages.offset_fetch import API as OFFSET_FETCH
from storage_engine.protocol.messages.offset_for_leader_epoch import API as OFFSET_FOR_LEADER_EPOCH
from storage_engine.protocol.messages.sync_group import API as SYNC_GROUP
from storage_engine.protocol.messages.txn_offset_commit import API as TXN_OFFSET_COMMIT
from storage_engine.protocol.messages.update_features import API as UPDATE_FEATURES
from storage_engine.protocol.messages.write_txn_markers import API as WRITE_TXN_MARKERS


def cluster_for_clients(
    ports: BrokerPorts, cluster: ClusterParts, replicas: ReplicaManager
) -> ClusterForClients:
    """The parts of the cluster's state that clients may see."""
    return ClusterForClients(
        cluster_id=ports.cluster_id,
        broker_id=ports.broker_id,
        metadata=cluster.metadata,
        doubts=cluster.doubts,
        has_lease=lambda: replicas.lease.is_held,
        scheduler=ports.scheduler,
    )


def add_record_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    *,
    produce: ProduceHandler,
    cluster: ClusterParts,
    replicas: ReplicaParts,
    requests: RequestParts,
    access: AccessParts | None,
) -> None:
    """Registers the APIs that write, read and delete records."""
    fetch = FetchHandler(
        sessions=requests.fetch_sessions,
        reader=requests.reader,
        json_answers=requests.json_answers,
        waits=requests.fetch_waits,
        metadata=cluster.metadata,
        leaders=requests.leaders,
        unreadable=None if access is None else access.unreadable,
    )
    delete_records = DeleteRecordsHandler(
        replicas=replicas.manager,
        log_starts=replicas.log_starts,
        metadata=cluster.metadata,
        scheduler=ports.scheduler,
    )
    table.add(PRODUCE, produce.handle)
    table.add(FETCH, fetch.handle)
    table.add(LIST_OFFSETS, partial(list_offsets.handle, replicas.manager))
    table.add(DELETE_RECORDS, delete_records.handle)
    table.add(OFFSET_FOR_LEADER_EPOCH, partial(offset_for_leader_epoch.handle, replicas.manager))


def add_transaction_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    *,
    cluster: ClusterParts,
    replicas: ReplicaManager,
    coordinators: CoordinatorParts,
) -> None:
    """Registers the APIs of transactions, and of the micro-batches of the exactly-once sink."""
    transactions, clock = coordinators.transactions, ports.clock
    init = partial(init_producer_id.handle, transactions, cluster.producer_ids, clock)
    end = partial(end_txn.handle, transactions, cluster.producer_ids, clock)
    add_partitions = AddPartitionsToTxnHandler(
        coordinators=transactions, metadata=cluster.metadata, clock=clock
    )
    markers = partial(write_txn_markers.handle, coordinators.marker_writes, cluster.metadata)
    batches = SinkBatchHandlers(
        coordinators=transactions, producer_ids=cluster.producer_ids, clock=clock
    )
    table.add(INIT_PRODUCER_ID, init)
    table.add(ADD_PARTITIONS_TO_TXN, add_partitions.handle)
    table.add(END_TXN, end)
    table.add(WRITE_TXN_MARKERS, markers)
    table.add(DESCRIBE_PRODUCERS, partial(describe_producers.handle, replicas))
    table.add(DESCRIBE_TRANSACTIONS, partial(describe_transactions.describe, transactions))
    table.add(LIST_TRANSACTIONS, partial(describe_transactions.list_all, transactions, clock))
    table.add(DESCRIBE_SINKS, partial(describe_sinks.handle, transactions, clock))
    table.add(JOIN_BATCH, batches.join_batch)
    table.add(COMMIT_BATCH, batches.commit_batch)
    table.add(BATCH_HEARTBEAT, batches.heartbeat)
    table.add(ABORT_MEMBERS, batches.abort_members)


def add_group_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    *,
    replicas: ReplicaManager,
    coordinators: CoordinatorParts,
) -> None:
    """Registers the APIs of consumer groups, and FindCoordinator."""
    metadata = cluster.metadata
    requests = GroupRequests(
        coordinators=coordinators.groups,
        config=settings.config,
        scheduler=ports.scheduler,
        clock=ports.clock,
    )
    find_coordinator = FindCoordinatorHandler(
        group_topic=coordinators.group_topic,
        transaction_topic=coordinators.transaction_topic,
        cluster=cluster_for_clients(ports, cluster, replicas),
    )
    members = GroupMemberHandlers(requests)
    offsets = GroupOffsetHandlers(requests=requests, metadata=metadata)
    admin = GroupAdminHandlers(requests=requests, metadata=metadata, broker_id=ports.broker_id)
    add_offsets = AddOffsetsToTxnHandler(
        group_topic=coordinators.group_topic,
        coordinators=coordinators.transactions,
        clock=ports.clock,
    )
    commit_in_transaction = TxnOffsetCommitHandler(
        requests=requests,
        metadata=metadata,
        group_topic=coordinators.group_topic,
        replicas=replicas,
        verifier=coordinators.verifier,
    )
    table.add(FIND_COORDINATOR, find_coordinator.handle)
    table.add(JOIN_GROUP, members.join_group)
    table.add(SYNC_GROUP, members.sync_group)
    table.add(HEARTBEAT, members.heartbeat)
    table.add(LEAVE_GROUP, members.leave_group)
    table.add(OFFSET_COMMIT, offsets.offset_commit)
    table.add(OFFSET_FETCH, offsets.offset_fetch)
    table.add(OFFSET_DELETE, offsets.offset_delete)
    table.add(DESCRIBE_GROUPS, admin.describe)
    table.add(LIST_GROUPS, admin.list_all)
    table.add(DELETE_GROUPS, admin.delete)
    table.add(ADD_OFFSETS_TO_TXN, add_offsets.handle)
    table.add(TXN_OFFSET_COMMIT, commit_in_transaction.handle)


def add_administration_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    replicas: ReplicaParts,
    config_changes: ConfigChanges,
    *,
    access: AccessParts | None,
) -> None:
    """Registers the APIs that any broker answers: the cluster, settings, log dirs."""
    _add_cluster_apis(table, ports, settings, cluster, replicas, access=access)
    describe_configs = DescribeConfigsHandler(
        broker_id=ports.broker_id,
        config=settings.config,
        config_store=settings.store,
        metadata=cluster.metadata,
    )
    describe_schemas = DescribeSchemasHandler(
        topics=settings.topics,
        config_store=settings.store,
        metadata=cluster.metadata,
        scheduler=ports.scheduler,
    )
    alter_configs = AlterConfigsHandlers(
        broker_id=ports.broker_id,
        config=settings.config,
        config_store=settings.store,
        config_changes=config_changes,
        metadata=cluster.metadata,
    )
    scram_credentials = ScramCredentialHandlers(
        metadata_store=ports.metadata_store,
        config_store=settings.store,
        config_changes=config_changes,
    )
    describe_log_dirs = partial(log_dirs.handle, replicas.manager, ports.config.log_dirs)
    client_quotas = ClientQuotasHandlers(
        usage=settings.clients, config_store=settings.store, config_changes=config_changes
    )
    table.add(UPDATE_FEATURES, update_features.handle)
    table.add(LIST_CONFIG_RESOURCES, partial(list_config_resources.handle, cluster.metadata))
    table.add(DESCRIBE_CONFIGS, describe_configs.handle)
    table.add(DESCRIBE_SCHEMAS, describe_schemas.handle)
    table.add(ALTER_CONFIGS, alter_configs.handle)
    table.add(INCREMENTAL_ALTER_CONFIGS, alter_configs.handle_incremental)
    table.add(DESCRIBE_CLIENT_QUOTAS, client_quotas.describe)
    table.add(ALTER_CLIENT_QUOTAS, client_quotas.alter)
    table.add(ALTER_REPLICA_LOG_DIRS, partial(alter_replica_log_dirs.handle, replicas.moves))
    table.add(DESCRIBE_LOG_DIRS, describe_log_dirs)
    _add_access_apis(table, access)
    table.add(DESCRIBE_USER_SCRAM_CREDENTIALS, scram_credentials.describe)
    table.add(ALTER_USER_SCRAM_CREDENTIALS, scram_credentials.alter)


def _add_cluster_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    replicas: ReplicaParts,
    *,
    access: AccessParts | None,
) -> None:
    """Registers the APIs that describe brokers, topics and leaders."""
    for_clients = cluster_for_clients(ports, cluster, replicas.manager)
    metadata = MetadataHandler(
        cluster=for_clients,
        probes=cluster.probes,
        topic_admin=cluster.topic_admin,
        config=settings.config,
        may_create=None if access is None else access.may_create,
    )
    describe_topic_partitions = DescribeTopicPartitionsHandler(
        cluster=for_clients,
        most_partitions=settings.config.integer("max.request.partition.size.limit"),
    )
    table.add(METADATA, metadata.handle)
    table.add(DESCRIBE_CLUSTER, partial(describe_cluster.handle, for_clients))
    table.add(DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle)


def _add_access_apis(table: HandlerTable, access: AccessParts | None) -> None:
    """Registers the APIs of access rules; without an authorizer they say that there is none."""
    handlers = AccessRuleHandlers()
    if access is not None:
        handlers = AccessRuleHandlers(authorizer=access.control.authorizer, changes=access.changes)
    table.add(DESCRIBE_ACLS, handlers.describe)
    table.add(CREATE_ACLS, handlers.create)
    table.add(DELETE_ACLS, handlers.delete)


def add_controller_apis(
    table: HandlerTable, ports: BrokerPorts, settings: SettingsParts, cluster: ClusterParts
) -> None:
    """Registers the APIs that only the controller answers."""
    controller, scheduler = cluster.controller, ports.scheduler
    create_topics = CreateTopicsHandler(
        controller=controller,
        topic_admin=cluster.topic_admin,
        config=settings.config,
        scheduler=scheduler,
    )
    create_partitions = CreatePartitionsHandler(
        controller=controller, topic_admin=cluster.topic_admin, scheduler=scheduler
    )
    delete_topics = DeleteTopicsHandler(
        controller=controller,
        config=settings.config,
        metadata=cluster.metadata,
        metadata_store=ports.metadata_store,
        scheduler=scheduler,
    )
    table.add(CREATE_TOPICS, create_topics.handle)
    table.add(CREATE_PARTITIONS, create_partitions.handle)
    table.add(DELETE_TOPICS, delete_topics.handle)
    table.add(ELECT_LEADERS, partial(elections.handle, controller, scheduler))
    table.add(ALTER_PARTITION_REASSIGNMENTS, partial(reassignments.alter, controller))
    table.add(LIST_PARTITION_REASSIGNMENTS, partial(reassignments.list_ongoing, controller))
    table.add(CONTROLLED_SHUTDOWN, partial(controlled_shutdown.handle, controller, scheduler))


def add_order_apis(
    table: HandlerTable,
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    *,
    replicas: ReplicaManager,
    coordinators: CoordinatorParts,
    orphaned_logs: OrphanedLogs,
) -> None:
    """The orders of the controller."""
    orders = Orders(settings.topics, ports.scheduler)
    full_orders = FullOrders(
        broker_id=ports.broker_id,
        replicas=replicas,
        metadata=cluster.metadata,
        orphaned_logs=orphaned_logs,
        named=NamedReplicas(),
    )
    leader_and_isr = LeaderAndIsrHandler(
        order_gate=cluster.order_gate,
        orders=orders,
        full_orders=full_orders,
        replicas=replicas,
        metadata=cluster.metadata,
    )
    stop_replica = StopReplicaHandler(
        order_gate=cluster.order_gate,
        orders=orders,
        replicas=replicas,
        topic_configs=settings.topics,
    )
    update_metadata = UpdateMetadataHandler(
        order_gate=cluster.order_gate,
        metadata=cluster.metadata,
        replicas=replicas,
        topic_configs=settings.topics,
        group_coordinators=coordinators.groups,
    )
    table.add(LEADER_AND_ISR, leader_and_isr.handle)
    table.add(STOP_REPLICA, stop_replica.handle)
    table.add(UPDATE_METADATA, update_metadata.handle)
