"""The handlers of all APIs, each with the parts that it needs; one function a subsystem."""

from collections.abc import Callable
from functools import partial

from storage_engine.broker.cluster.order_gate import NamedReplicas, Orders
from storage_engine.broker.groups.patterns import pattern_problem
from storage_engine.broker.handlers.administration import reassignments
from storage_engine.broker.handlers.administration.access_rules import AccessRuleHandlers
from storage_engine.broker.handlers.administration.alter_configs import AlterConfigsHandlers
from storage_engine.broker.handlers.administration.client_quotas import ClientQuotasHandlers
from storage_engine.broker.handlers.administration.describe_configs import (
    DescribeConfigsHandler,
    DescribeSchemasHandler,
    list_config_resources,
)
from storage_engine.broker.handlers.administration.features import UpdateFeaturesHandler
from storage_engine.broker.handlers.administration.log_dirs import (
    alter_replica_log_dirs,
    describe_log_dirs,
)
from storage_engine.broker.handlers.administration.metadata import (
    ClusterForClients,
    DescribeTopicPartitionsHandler,
    MetadataHandler,
    describe_cluster,
)
from storage_engine.broker.handlers.administration.reassignments import elect_leaders
from storage_engine.broker.handlers.administration.topics import (
    CreatePartitionsHandler,
    CreateTopicsHandler,
    DeleteTopicsHandler,
)
from storage_engine.broker.handlers.administration.user_scram_credentials import (
    ScramCredentialHandlers,
)
from storage_engine.broker.handlers.controller.orders import (
    FullOrders,
    LeaderAndIsrHandler,
    StopReplicaHandler,
    UpdateMetadataHandler,
    controlled_shutdown,
)
from storage_engine.broker.handlers.groups.consumer_groups import ConsumerGroupHandlers
from storage_engine.broker.handlers.groups.group_members import (
    FindCoordinatorHandler,
    GroupMemberHandlers,
)
from storage_engine.broker.handlers.groups.group_offsets import (
    AddOffsetsToTxnHandler,
    GroupOffsetHandlers,
    TxnOffsetCommitHandler,
)
from storage_engine.broker.handlers.groups.group_requests import GroupAdminHandlers, GroupRequests
from storage_engine.broker.handlers.records.fetch import FetchHandler
from storage_engine.broker.handlers.records.offsets import (
    DeleteRecordsHandler,
    list_offsets,
    offset_for_leader_epoch,
)
from storage_engine.broker.handlers.records.produce import ProduceHandler
from storage_engine.broker.handlers.transactions.batches import SinkBatchHandlers
from storage_engine.broker.handlers.transactions.describe_transactions import (
    describe_producers,
    describe_sinks,
    describe_transactions,
    list_transactions,
)
from storage_engine.broker.handlers.transactions.transactions import (
    AddPartitionsToTxnHandler,
    end_txn,
    init_producer_id,
    write_txn_markers,
)
from storage_engine.broker.wiring.access import guard_all
from storage_engine.broker.wiring.broker_parts import BrokerParts
from storage_engine.protocol.apis.consumer_group_heartbeat import API as CONSUMER_GROUP_HEARTBEAT
from storage_engine.protocol.apis.registry import is_offered


def add_handlers(parts: BrokerParts) -> None:
    """Fill the table: all APIs, each behind its guard."""
    parts.authentication.gate.add_apis(parts.table)
    _add_record_apis(parts)
    _add_transaction_apis(parts)
    _add_group_apis(parts)
    _add_administration_apis(parts)
    _add_controller_apis(parts)
    _add_order_apis(parts)
    guard_all(parts.table, parts.access, _cluster_for_clients(parts))


def _cluster_for_clients(parts: BrokerParts) -> ClusterForClients:
    """The parts of the cluster's state that clients may see."""
    ports, cluster, replicas = parts.ports, parts.cluster, parts.replicas.manager
    return ClusterForClients(
        cluster_id=ports.cluster_id,
        broker_id=ports.broker_id,
        metadata=cluster.metadata,
        doubts=cluster.doubts,
        has_lease=lambda: replicas.lease.is_held,
        scheduler=ports.scheduler,
    )


def _has_consumer_groups(parts: BrokerParts) -> Callable[[], bool]:
    """The gate of consumer groups: whether the cluster's features allow them by now."""
    return partial(is_offered, CONSUMER_GROUP_HEARTBEAT.key, parts.cluster.features.level)


def _add_record_apis(parts: BrokerParts) -> None:
    """Registers the APIs that write, read and delete records."""
    ports, cluster = parts.ports, parts.cluster
    replicas, requests, access = parts.replicas, parts.requests, parts.access
    produce = ProduceHandler(
        replicas=replicas.manager,
        producer_appends=replicas.producer_appends,
        transactional_appends=parts.coordinators.transactional_appends,
        scheduler=ports.scheduler,
        leaders=requests.leaders,
        may_still_write=None if access is None else access.may_still_write,
    )
    fetch = FetchHandler(
        sessions=requests.fetch_sessions,
        reader=requests.reader,
        foreign_answers=requests.foreign_answers,
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
    parts.table.serve(
        Produce=produce.handle,
        Fetch=fetch.handle,
        ListOffsets=partial(list_offsets, replicas.manager),
        DeleteRecords=delete_records.handle,
        OffsetForLeaderEpoch=partial(offset_for_leader_epoch, replicas.manager),
    )


def _add_transaction_apis(parts: BrokerParts) -> None:
    """Registers the APIs of transactions, and of the micro-batches of the exactly-once sink."""
    ports, cluster = parts.ports, parts.cluster
    replicas, coordinators = parts.replicas.manager, parts.coordinators
    transactions, clock = coordinators.transactions, ports.clock
    init = partial(init_producer_id, transactions, cluster.producer_ids, clock)
    end = partial(end_txn, transactions, cluster.producer_ids, clock)
    add_partitions = AddPartitionsToTxnHandler(
        coordinators=transactions, metadata=cluster.metadata, clock=clock
    )
    markers = partial(write_txn_markers, coordinators.marker_writes, cluster.metadata)
    batches = SinkBatchHandlers(
        coordinators=transactions, producer_ids=cluster.producer_ids, clock=clock
    )
    parts.table.serve(
        InitProducerId=init,
        AddPartitionsToTxn=add_partitions.handle,
        EndTxn=end,
        WriteTxnMarkers=markers,
        DescribeProducers=partial(describe_producers, replicas),
        DescribeTransactions=partial(describe_transactions, transactions),
        ListTransactions=partial(list_transactions, transactions, clock),
        DescribeSinks=partial(describe_sinks, transactions, clock),
        JoinBatch=batches.join_batch,
        CommitBatch=batches.commit_batch,
        BatchHeartbeat=batches.heartbeat,
        AbortMembers=batches.abort_members,
    )


def _add_group_apis(parts: BrokerParts) -> None:
    """Registers the APIs of consumer groups, and FindCoordinator."""
    ports, settings = parts.ports, parts.settings
    cluster, replicas, coordinators = parts.cluster, parts.replicas.manager, parts.coordinators
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
        cluster=_cluster_for_clients(parts),
    )
    members = GroupMemberHandlers(requests)
    consumer_groups = ConsumerGroupHandlers(
        requests=requests,
        metadata=metadata,
        pattern_problem=pattern_problem,
        is_enabled=_has_consumer_groups(parts),
    )
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
    parts.table.serve(
        FindCoordinator=find_coordinator.handle,
        JoinGroup=members.join_group,
        SyncGroup=members.sync_group,
        Heartbeat=members.heartbeat,
        LeaveGroup=members.leave_group,
        OffsetCommit=offsets.offset_commit,
        OffsetFetch=offsets.offset_fetch,
        OffsetDelete=offsets.offset_delete,
        ConsumerGroupHeartbeat=consumer_groups.heartbeat,
        ConsumerGroupDescribe=consumer_groups.describe,
        DescribeGroups=admin.describe,
        ListGroups=admin.list_all,
        DeleteGroups=admin.delete,
        AddOffsetsToTxn=add_offsets.handle,
        TxnOffsetCommit=commit_in_transaction.handle,
    )


def _add_administration_apis(parts: BrokerParts) -> None:
    """Registers the APIs that any broker answers: the cluster, settings, log dirs."""
    ports, settings, cluster, replicas = parts.ports, parts.settings, parts.cluster, parts.replicas
    _add_cluster_apis(parts)
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
        config_changes=parts.config_changes,
        metadata=cluster.metadata,
        has_consumer_groups=_has_consumer_groups(parts),
    )
    scram_credentials = ScramCredentialHandlers(
        metadata_store=ports.metadata_store,
        config_store=settings.store,
        config_changes=parts.config_changes,
    )
    client_quotas = ClientQuotasHandlers(
        usage=settings.clients, config_store=settings.store, config_changes=parts.config_changes
    )
    parts.table.serve(
        ListConfigResources=partial(list_config_resources, cluster.metadata, settings.groups.names),
        DescribeConfigs=describe_configs.handle,
        DescribeSchemas=describe_schemas.handle,
        AlterConfigs=alter_configs.handle,
        IncrementalAlterConfigs=alter_configs.handle_incremental,
        DescribeClientQuotas=client_quotas.describe,
        AlterClientQuotas=client_quotas.alter,
        AlterReplicaLogDirs=partial(alter_replica_log_dirs, replicas.moves),
        DescribeLogDirs=partial(describe_log_dirs, replicas.manager, ports.config.log_dirs),
    )
    _add_access_apis(parts)
    parts.table.serve(
        DescribeUserScramCredentials=scram_credentials.describe,
        AlterUserScramCredentials=scram_credentials.alter,
    )


def _add_cluster_apis(parts: BrokerParts) -> None:
    """Registers the APIs that describe brokers, topics and leaders."""
    settings, cluster, access = parts.settings, parts.cluster, parts.access
    for_clients = _cluster_for_clients(parts)
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
    parts.table.serve(
        Metadata=metadata.handle,
        DescribeCluster=partial(describe_cluster, for_clients),
        DescribeTopicPartitions=describe_topic_partitions.handle,
    )


def _add_access_apis(parts: BrokerParts) -> None:
    """Registers the APIs of access rules; without an authorizer they say that there is none."""
    access = parts.access
    handlers = AccessRuleHandlers()
    if access is not None:
        handlers = AccessRuleHandlers(authorizer=access.control.authorizer, changes=access.changes)
    parts.table.serve(
        DescribeAcls=handlers.describe,
        CreateAcls=handlers.create,
        DeleteAcls=handlers.delete,
    )


def _add_controller_apis(parts: BrokerParts) -> None:
    """Registers the APIs that only the controller answers."""
    ports, settings, cluster = parts.ports, parts.settings, parts.cluster
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
    update_features = UpdateFeaturesHandler(
        controller=controller, features=cluster.features, scheduler=scheduler
    )
    parts.table.serve(
        UpdateFeatures=update_features.handle,
        CreateTopics=create_topics.handle,
        CreatePartitions=create_partitions.handle,
        DeleteTopics=delete_topics.handle,
        ElectLeaders=partial(elect_leaders, controller, scheduler),
        AlterPartitionReassignments=partial(reassignments.alter, controller, cluster.places),
        ListPartitionReassignments=partial(reassignments.list_ongoing, controller),
        ControlledShutdown=partial(controlled_shutdown, controller, scheduler),
    )


def _add_order_apis(parts: BrokerParts) -> None:
    """Registers the orders of the controller."""
    ports, settings = parts.ports, parts.settings
    cluster, replicas, coordinators = parts.cluster, parts.replicas.manager, parts.coordinators
    orders = Orders(settings.topics, ports.scheduler)
    full_orders = FullOrders(
        broker_id=ports.broker_id,
        replicas=replicas,
        metadata=cluster.metadata,
        orphaned_logs=parts.upkeep.orphaned_logs,
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
    parts.table.serve(
        LeaderAndIsr=leader_and_isr.handle,
        StopReplica=stop_replica.handle,
        UpdateMetadata=update_metadata.handle,
    )
