"""Settings of Kafka that brokers take and that have no effect here, each with the reason.

Some are taken at Kafka's default alone, since another value asks for something that is not done:
an error says so. A line in the log names those that are given. Source: Kafka 3.9 to 4.4.
"""

import sys
from dataclasses import replace

from storage_engine.core.settings.setting import Setting, setting_of

_LARGEST_DOUBLE = sys.float_info.max

# Reason: a row of `setting_of` a line; `only` is taken at its default alone, `never` not at all.
_ROWS: dict[str, str] = {
    "brokers meet in ZooKeeper, not in a quorum of controllers": """
    controller.listener.names list - never
    controller.quorum.bootstrap.servers list - never
    controller.quorum.voters list - never
    metadata.log.dir str - never
    node.id int - never
    process.roles list - never
    """,
    "there is no quorum of controllers": """
    broker.heartbeat.interval.ms int 2000
    broker.session.timeout.ms int 9000
    controller.quorum.append.linger.ms int 25
    controller.quorum.auto.join.enable bool false
    controller.quorum.election.backoff.max.ms int 1000
    controller.quorum.election.timeout.ms int 1000
    controller.quorum.fetch.max.bytes int 1048576
    controller.quorum.fetch.snapshot.max.bytes int 1048576
    controller.quorum.fetch.timeout.ms int 2000
    controller.quorum.request.timeout.ms int 2000
    controller.quorum.retry.backoff.ms int 20
    controller.socket.timeout.ms int 30000
    early.start.listeners list -
    initial.broker.registration.timeout.ms int 60000
    metadata.log.max.record.bytes.between.snapshots long 20971520
    metadata.log.max.snapshot.interval.ms long 3600000
    metadata.log.segment.bytes int 1073741824
    metadata.log.segment.ms long 604800000
    metadata.max.idle.interval.ms int 500
    metadata.max.retention.bytes long 104857600
    metadata.max.retention.ms long 604800000
    sasl.mechanism.controller.protocol str GSSAPI
    """,
    "orders of the controller travel on inter.broker.listener.name": """
    control.plane.listener.name str - never
    """,
    "brokers are not migrated to a quorum of controllers": """
    zookeeper.metadata.migration.enable bool false only
    """,
    "certificates of ZooKeeper are not looked up in lists of revoked ones": """
    zookeeper.ssl.crl.enable bool false only
    zookeeper.ssl.ocsp.enable bool false only
    """,
    "ZooKeeper and the broker take the newest version of TLS that both know": """
    zookeeper.ssl.protocol str TLSv1.2
    """,
    "requests to ZooKeeper are sent as they come": """
    zookeeper.max.in.flight.requests int 10
    """,
    "no Java runs in a broker": """
    alter.config.policy.class.name str - only
    client.quota.callback.class str - only
    create.topic.policy.class.name str - only
    group.streams.topology.description.plugin.class str - only
    principal.builder.class \
        str org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder only live
    sasl.client.callback.handler.class str - only
    sasl.login.callback.handler.class str - only
    sasl.login.class str - only
    sasl.oauthbearer.jwt.retriever.class \
        str org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever only
    sasl.oauthbearer.jwt.validator.class \
        str org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator only
    sasl.server.callback.handler.class str - only
    security.providers str - only
    ssl.engine.factory.class str - only live
    """,
    "tokens are checked for their issuer and audience": """
    sasl.oauthbearer.allow.unverified.audience bool false only
    sasl.oauthbearer.allow.unverified.issuer bool false only
    """,
    "brokers check tokens and fetch none": """
    sasl.login.connect.timeout.ms int -
    sasl.login.read.timeout.ms int -
    sasl.login.refresh.buffer.seconds int 300 live
    sasl.login.refresh.min.period.seconds int 60 live
    sasl.login.refresh.window.factor double 0.8 live
    sasl.login.refresh.window.jitter double 0.05 live
    sasl.login.retry.backoff.max.ms long 10000
    sasl.login.retry.backoff.ms long 100
    sasl.oauthbearer.assertion.algorithm str RS256
    sasl.oauthbearer.assertion.claim.aud str -
    sasl.oauthbearer.assertion.claim.exp.seconds int 300
    sasl.oauthbearer.assertion.claim.iss str -
    sasl.oauthbearer.assertion.claim.jti.include bool false
    sasl.oauthbearer.assertion.claim.nbf.seconds int 60
    sasl.oauthbearer.assertion.claim.sub str -
    sasl.oauthbearer.assertion.file str -
    sasl.oauthbearer.assertion.private.key.file str -
    sasl.oauthbearer.assertion.private.key.passphrase password -
    sasl.oauthbearer.assertion.template.file str -
    sasl.oauthbearer.client.credentials.client.id str -
    sasl.oauthbearer.client.credentials.client.secret password -
    sasl.oauthbearer.scope str -
    sasl.oauthbearer.scope.claim.name str scope
    sasl.oauthbearer.token.endpoint.url str -
    """,
    "there is no GSSAPI": """
    sasl.kerberos.kinit.cmd str /usr/bin/kinit live
    sasl.kerberos.min.time.before.relogin long 60000 live
    sasl.kerberos.principal.to.local.rules list DEFAULT live
    sasl.kerberos.service.name str - live
    sasl.kerberos.ticket.renew.jitter double 0.05 live
    sasl.kerberos.ticket.renew.window.factor double 0.8 live
    """,
    "there are no delegation tokens": """
    delegation.token.expiry.check.interval.ms long 3600000
    delegation.token.expiry.time.ms long 86400000
    delegation.token.master.key password - never
    delegation.token.max.lifetime.ms long 604800000
    delegation.token.secret.key password - never
    """,
    "there is no remote storage": """
    =remote.log.copy.disable bool false
    =remote.log.delete.on.disable bool false
    =remote.storage.enable bool false only
    follower.fetch.last.tiered.offset.enable bool false live
    log.local.retention.bytes=local.retention.bytes long -2
    log.local.retention.ms=local.retention.ms long -2
    log.remote.copy.lag.bytes=remote.copy.lag.bytes long -1
    log.remote.copy.lag.ms=remote.copy.lag.ms long 0
    remote.fetch.max.wait.ms int 500 live
    remote.list.offsets.request.timeout.ms long 30000 live
    remote.log.index.file.cache.total.size.bytes long 1073741824 live
    remote.log.manager.copier.thread.pool.size int 10 live
    remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 live
    remote.log.manager.copy.quota.window.num int 11
    remote.log.manager.copy.quota.window.size.seconds int 1
    remote.log.manager.expiration.thread.pool.size int 10 live
    remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 live
    remote.log.manager.fetch.quota.window.num int 11
    remote.log.manager.fetch.quota.window.size.seconds int 1
    remote.log.manager.follower.thread.pool.size int 2 live
    remote.log.manager.task.interval.ms long 30000
    remote.log.manager.thread.pool.size int 2
    remote.log.metadata.custom.metadata.max.bytes int 128
    remote.log.metadata.manager.class.name \
        str org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    remote.log.metadata.manager.class.path str -
    remote.log.metadata.manager.impl.prefix str rlmm.config.
    remote.log.metadata.manager.listener.name str -
    remote.log.reader.max.pending.tasks int 100
    remote.log.reader.threads int 10 live
    remote.log.storage.manager.class.name str -
    remote.log.storage.manager.class.path str -
    remote.log.storage.manager.impl.prefix str rsm.config.
    remote.log.storage.system.enable bool false only
    """,
    "there are no share groups": """
    =errors.deadletterqueue.group.enable bool false only
    errors.deadletterqueue.auto.create.topics.enable bool false live
    errors.deadletterqueue.topic.name.prefix str dlq. live
    group.share.assignment.interval.ms int 1000 live
    group.share.assignors list simple
    group.share.delivery.count.limit int 5
    group.share.heartbeat.interval.ms int 5000
    group.share.max.assignment.interval.ms int 15000
    group.share.max.delivery.count.limit int 10
    group.share.max.groups int 10
    group.share.max.heartbeat.interval.ms int 15000
    group.share.max.partition.max.record.locks int 4000
    group.share.max.record.lock.duration.ms int 60000
    group.share.max.session.timeout.ms int 60000
    group.share.max.share.sessions int 2000
    group.share.max.size int 200
    group.share.min.assignment.interval.ms int 0
    group.share.min.delivery.count.limit int 2
    group.share.min.heartbeat.interval.ms int 5000
    group.share.min.partition.max.record.locks int 100
    group.share.min.record.lock.duration.ms int 15000
    group.share.min.session.timeout.ms int 45000
    group.share.partition.max.record.locks int 2000
    group.share.record.lock.duration.ms int 30000
    group.share.session.timeout.ms int 45000
    share.coordinator.append.linger.ms int -1
    share.coordinator.cached.buffer.max.bytes int 1048588 live
    share.coordinator.load.buffer.size int 5242880
    share.coordinator.snapshot.update.records.per.snapshot int 500
    share.coordinator.state.topic.compression.codec int 0
    share.coordinator.state.topic.min.isr int 2
    share.coordinator.state.topic.num.partitions int 50
    share.coordinator.state.topic.replication.factor int 3
    share.coordinator.state.topic.segment.bytes int 104857600
    share.coordinator.threads int 1
    share.coordinator.write.timeout.ms int 5000
    share.fetch.purgatory.purge.interval.requests int 1000
    """,
    "there are no groups of Kafka Streams' own protocol": """
    group.streams.assignment.interval.ms int 1000 live
    group.streams.assignors list sticky
    group.streams.heartbeat.interval.ms int 5000
    group.streams.initial.rebalance.delay.ms int 3000
    group.streams.max.assignment.interval.ms int 15000
    group.streams.max.heartbeat.interval.ms int 15000
    group.streams.max.session.timeout.ms int 60000
    group.streams.max.size int 2147483647
    group.streams.max.standby.replicas int 2
    group.streams.min.assignment.interval.ms int 0
    group.streams.min.heartbeat.interval.ms int 5000
    group.streams.min.session.timeout.ms int 45000
    group.streams.num.standby.replicas int 0
    group.streams.rack.aware.assignment.tags list ()
    group.streams.session.timeout.ms int 45000
    """,
    "targets of consumer groups are computed as soon as they have to change": """
    group.consumer.assignment.interval.ms int 1000 live
    group.consumer.max.assignment.interval.ms int 15000
    group.consumer.min.assignment.interval.ms int 0
    """,
    "the feature group.version says which protocols groups may have": """
    group.coordinator.rebalance.protocols list classic,consumer
    """,
    "set message.timestamp.before.max.ms and message.timestamp.after.max.ms": """
    log.message.timestamp.difference.max.ms=message.timestamp.difference.max.ms \
        long 9223372036854775807 only
    """,
    "records are of format 2, and older clients than those of Kafka 0.11 are not served": """
    inter.broker.protocol.version str 3.9-IV0
    log.message.downconversion.enable=message.downconversion.enable bool true
    log.message.format.version=message.format.version str 3.0-IV1
    """,
    "batches are read in steps, however large they are unpacked": """
    max.decompressed.message.bytes= int 2147483639 only
    """,
    "a leader that compresses anew does so at the codec's own level": """
    compression.gzip.level= int -1
    compression.lz4.level= int 9
    compression.zstd.level= int 3
    """,
    "segments grow as they are written": """
    log.preallocate=preallocate bool false
    """,
    "replicas that have left the in-sync replicas are not eligible": """
    eligible.leader.replicas.enable bool false only
    """,
    "values stand in the file as they are": """
    config.providers list () only live
    """,
    "there are no commits in two phases": """
    transaction.two.phase.commit.enable bool false only
    """,
    "partitions of a transaction are always verified": """
    transaction.partition.verification.enable bool true live
    """,
    "secrets are not kept in ZooKeeper": """
    password.encoder.cipher.algorithm str AES/CBC/PKCS5Padding
    password.encoder.iterations int 4096
    password.encoder.key.length int 128
    password.encoder.keyfactory.algorithm str -
    password.encoder.old.secret password -
    password.encoder.secret password -
    """,
    "OpenSSL decides": """
    ssl.allow.dn.changes bool false
    ssl.allow.san.changes bool false
    ssl.keymanager.algorithm str SunX509 live
    ssl.protocol str TLSv1.3 live
    ssl.provider str - live
    ssl.secure.random.implementation str - live
    ssl.trustmanager.algorithm str PKIX live
    """,
    "metrics are served by metrics.listener": """
    auto.include.jmx.reporter bool true
    kafka.metrics.polling.interval.secs int 10
    kafka.metrics.reporters list ()
    metric.reporters list org.apache.kafka.common.metrics.JmxReporter live
    metrics.num.samples int 2
    metrics.recording.level str INFO
    metrics.sample.window.ms long 30000
    telemetry.max.bytes int 1048576
    """,
    "broker.id is required": """
    broker.id.generation.enable bool true
    reserved.broker.max.id int 1000
    """,
    "commits of offsets wait for all in-sync replicas": """
    offsets.commit.required.acks int -1
    """,
    "an event loop serves connections and logs, with as many threads beside it as it needs": """
    background.threads int 10 live
    group.coordinator.background.threads int 2
    group.coordinator.threads int 4
    log.cleaner.threads int 1 live
    num.io.threads int 8 live
    num.network.threads int 3 live
    num.recovery.threads.per.data.dir int 2 live
    num.replica.alter.log.dirs.threads int -
    num.replica.fetchers int 1 live
    """,
    "compaction is not throttled, and its buffers have a fixed size": """
    log.cleaner.io.buffer.load.factor double 0.9 live
    log.cleaner.io.buffer.size int 524288 live
    log.cleaner.io.max.bytes.per.second double 1.7976931348623157e308 live
    """,
    "buffers, windows and pauses of this kind are fixed": """
    add.partitions.to.txn.retry.backoff.max.ms int 100
    add.partitions.to.txn.retry.backoff.ms int 20
    alter.config.policy.kraft.compatibility.enable bool false
    alter.log.dirs.replication.quota.window.num int 11
    alter.log.dirs.replication.quota.window.size.seconds int 1
    controlled.shutdown.max.retries int 3
    controlled.shutdown.retry.backoff.ms long 5000
    controller.quota.window.num int 11
    controller.quota.window.size.seconds int 1
    delete.records.purgatory.purge.interval.requests int 1
    fetch.max.bytes int 57671680
    fetch.purgatory.purge.interval.requests int 1000
    group.coordinator.append.linger.ms int -1
    group.coordinator.cached.buffer.max.bytes int 1048588 live
    log.dir.failure.timeout.ms long 30000
    log.flush.start.offset.checkpoint.interval.ms int 60000
    offsets.load.buffer.size int 5242880
    offsets.topic.compression.codec int 0
    producer.purgatory.purge.interval.requests int 1000
    quota.window.num int 11
    quota.window.size.seconds int 1
    replica.socket.receive.buffer.bytes int 65536
    replica.socket.timeout.ms int 30000
    replication.quota.window.num int 11
    replication.quota.window.size.seconds int 1
    request.timeout.ms int 30000
    socket.connection.setup.timeout.max.ms long 30000
    socket.connection.setup.timeout.ms long 10000
    socket.listen.backlog.size int 50
    transaction.remove.expired.transaction.cleanup.interval.ms int 3600000
    transaction.state.log.load.buffer.size int 5242880
    """,
}


def _setting(row: str, reason: str) -> Setting:
    name, kind, *_ = row.split()
    if kind == "double":
        row = f"{row} min=-{_LARGEST_DOUBLE} max={_LARGEST_DOUBLE}"
    return replace(
        setting_of(row, f"No effect here: {reason}."),
        without_effect=reason,
        # A listener may have its own of these.
        per_listener=name.startswith(("ssl.", "sasl.", "principal.")),
    )


KAFKA_SETTINGS: tuple[Setting, ...] = tuple(
    _setting(row, reason) for reason, rows in _ROWS.items() for row in rows.strip().splitlines()
)
