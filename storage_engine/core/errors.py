"""The table of error codes: number, retriable or final, meaning. Exceptions become codes by it.

Source: the error codes of the Kafka protocol.
"""

import enum
from collections.abc import Sequence
from typing import Self


class ErrorCode(enum.IntEnum):
    """Error codes of the Kafka protocol that this project sends or understands."""

    retriable: bool
    meaning: str

    def __new__(cls, value: int, retriable: bool, meaning: str) -> "ErrorCode":
        member = int.__new__(cls, value)
        member._value_ = value
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "the broker met an error that it did not expect")
    NONE = (0, False, "no error")
    OFFSET_OUT_OF_RANGE = (1, False, "the offset is outside the log")
    CORRUPT_MESSAGE = (2, True, "a record batch failed its checks")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "this broker does not know that topic or partition")
    INVALID_FETCH_SIZE = (4, False, "the fetch size is invalid")
    LEADER_NOT_AVAILABLE = (5, True, "the partition has no leader at the moment")
    NOT_LEADER_OR_FOLLOWER = (6, True, "this broker does not lead that partition")
    REQUEST_TIMED_OUT = (7, True, "the time allowed for the request ran out")
    BROKER_NOT_AVAILABLE = (8, False, "the broker is not available")
    REPLICA_NOT_AVAILABLE = (9, True, "the replica is not available")
    MESSAGE_TOO_LARGE = (10, False, "a record batch is larger than max.message.bytes")
    STALE_CONTROLLER_EPOCH = (11, False, "the controller has been replaced")
    OFFSET_METADATA_TOO_LARGE = (12, False, "the metadata of the offset is too large")
    NETWORK_EXCEPTION = (13, True, "the connection was lost before the answer")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "the coordinator is loading")
    COORDINATOR_NOT_AVAILABLE = (15, True, "the coordinator is not available")
    NOT_COORDINATOR = (16, True, "this broker is not the coordinator")
    INVALID_TOPIC_EXCEPTION = (17, False, "the topic name is not valid")
    RECORD_LIST_TOO_LARGE = (18, False, "the request has more records than a segment can hold")
    NOT_ENOUGH_REPLICAS = (19, True, "fewer replicas are in sync than min.insync.replicas asks for")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "appended, but fewer replicas are in sync than min.insync.replicas asks for",
    )
    INVALID_REQUIRED_ACKS = (21, False, "acks must be -1 (all), 0 or 1")
    ILLEGAL_GENERATION = (22, False, "the group has another generation now")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "the member's protocols do not match the group's")
    INVALID_GROUP_ID = (24, False, "the group id is not valid")
    UNKNOWN_MEMBER_ID = (25, False, "the group does not know that member")
    INVALID_SESSION_TIMEOUT = (26, False, "the session timeout is outside the allowed range")
    REBALANCE_IN_PROGRESS = (27, False, "the group is rebalancing")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "the committed offset's metadata is too large")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "not allowed to use that topic")
    GROUP_AUTHORIZATION_FAILED = (30, False, "not allowed to use that group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "not allowed to do that to the cluster")
    INVALID_TIMESTAMP = (32, False, "the timestamp is out of the accepted range")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "the SASL mechanism is not supported")
    ILLEGAL_SASL_STATE = (34, False, "the request does not fit the SASL state")
    UNSUPPORTED_VERSION = (35, False, "this version of the request is not served")
    TOPIC_ALREADY_EXISTS = (36, False, "a topic of that name exists")
    INVALID_PARTITIONS = (37, False, "the number of partitions is not valid")
    INVALID_REPLICATION_FACTOR = (38, False, "the replication factor is not possible")
    INVALID_REPLICA_ASSIGNMENT = (39, False, "the replica assignment is not valid")
    INVALID_CONFIG = (40, False, "a setting is not valid")
    NOT_CONTROLLER = (41, True, "this broker is not the controller")
    INVALID_REQUEST = (42, False, "the request is malformed or contradicts itself")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "only record batches of magic 2 are stored")
    POLICY_VIOLATION = (44, False, "a policy forbids the request")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "the producer's sequence number has a gap")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "the producer's sequence number is an old duplicate")
    INVALID_PRODUCER_EPOCH = (47, False, "a newer instance of the producer has taken over")
    INVALID_TXN_STATE = (48, False, "the transaction is not in a state for that request")
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "the producer id does not belong to that transactional id",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "the transaction timeout is out of the accepted range",
    )
    CONCURRENT_TRANSACTIONS = (51, True, "the previous transaction is not finished yet")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "the transaction coordinator has been replaced")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "not allowed to use that transactional id")
    SECURITY_DISABLED = (54, False, "security features are off")
    OPERATION_NOT_ATTEMPTED = (55, False, "the operation was not attempted")
    KAFKA_STORAGE_ERROR = (56, True, "the disk of that log has failed")
    LOG_DIR_NOT_FOUND = (57, False, "the log dir is not in log.dirs")
    SASL_AUTHENTICATION_FAILED = (58, False, "SASL authentication failed")
    UNKNOWN_PRODUCER_ID = (59, False, "the log has forgotten that producer id")
    REASSIGNMENT_IN_PROGRESS = (60, False, "the partition is being reassigned")
    NON_EMPTY_GROUP = (68, False, "the group has members")
    GROUP_ID_NOT_FOUND = (69, False, "there is no such group")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "the fetch session is unknown")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "the fetch session has another epoch")
    LISTENER_NOT_FOUND = (72, True, "the leader has no such listener")
    TOPIC_DELETION_DISABLED = (73, False, "delete.topic.enable is false")
    FENCED_LEADER_EPOCH = (74, True, "the leader epoch of the request is old")
    UNKNOWN_LEADER_EPOCH = (75, True, "the leader epoch of the request is newer than this broker's")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "the compression type is not supported")
    STALE_BROKER_EPOCH = (77, False, "the broker has registered again since")
    OFFSET_NOT_AVAILABLE = (78, True, "the new leader's high watermark has not caught up yet")
    MEMBER_ID_REQUIRED = (79, False, "join again with the member id given")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "the preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = (81, False, "the group is full")
    FENCED_INSTANCE_ID = (82, False, "another member has taken that instance id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "no eligible leader is available")
    ELECTION_NOT_NEEDED = (84, True, "the partition has that leader already")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "the partition is not being reassigned")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "the group is subscribed to the topic")
    INVALID_RECORD = (87, False, "a record failed the broker's checks")
    UNSTABLE_OFFSET_COMMIT = (88, True, "offsets of an open transaction are pending")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "a quota is used up for now")
    PRODUCER_FENCED = (90, False, "a newer producer has taken over")
    RESOURCE_NOT_FOUND = (91, False, "there is no such resource")
    DUPLICATE_RESOURCE = (92, False, "the request names a resource twice")
    UNACCEPTABLE_CREDENTIAL = (93, False, "the credential is not acceptable")
    INVALID_UPDATE_VERSION = (95, False, "the feature can't be set to that level")
    FEATURE_UPDATE_FAILED = (96, False, "the levels of features were not written")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "the transactional id is unknown")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "the fetch session has topics by their names")
    UNKNOWN_TOPIC_ID = (100, True, "this broker does not know that topic id")
    INCONSISTENT_TOPIC_ID = (103, True, "the topic id is that of another topic")
    FENCED_MEMBER_EPOCH = (110, False, "the member epoch is not the member's: join anew")
    UNRELEASED_INSTANCE_ID = (111, False, "another member has that instance id and is still there")
    UNSUPPORTED_ASSIGNOR = (112, False, "the broker has no such assignor")
    STALE_MEMBER_EPOCH = (113, False, "the member has another epoch by now")
    TRANSACTION_ABORTABLE = (120, False, "the transaction must be aborted")
    INVALID_REGULAR_EXPRESSION = (128, False, "the regular expression is not valid")
    # ---- of Headrace's own requests, far above Kafka's ----
    ALREADY_COMMITTED = (10_001, False, "the micro-batch was committed before")
    MEMBER_LOST = (
        10_002,
        False,
        "a task attempt of the micro-batch has no open transaction any more: restart the query",
    )
    NOT_COMMITTED = (
        10_003,
        False,
        "tasks found the micro-batch committed, but it is not: restart the query",
    )
    BATCH_ID_TAKEN = (
        10_004,
        False,
        "the batchId was committed by another write: write under another sinkId or sinkPart",
    )
    RUN_REPLACED = (
        10_005,
        False,
        "a newer run of the same query writes to this sink, so this one has to end: is its "
        "checkpoint in use twice?",
    )
    TOO_MANY_BATCH_IDS = (
        10_006,
        False,
        "the committed batchIds of this part of the sink lie in too many pieces to take one more "
        "that continues none of them: use numbers that follow each other, or another sinkPart",
    )
    BATCH_IDS_CHANGED = (
        10_009,
        True,
        "this micro-batch is repeated, and does not write all that it has written before, so rows "
        "might be there twice: write to the same sinkIds and sinkParts until it has ended",
    )
    UNKNOWN_SCHEMA_VERSION = (
        10_008,
        True,
        "this broker does not know that version of the topic's schema yet",
    )

    @classmethod
    def of(cls, value: int) -> "ErrorCode":
        """Return the member for a number in a response; UNKNOWN_SERVER_ERROR for one that is not in
        the table."""
        try:
            return cls(value)  # type: ignore[call-arg]  # mypy takes the members' arguments for it
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


class HeadraceError(Exception):
    """The base of every error that a user may see; its text is one line that names the thing and
    the remedy."""


class ConfigError(HeadraceError):
    """A setting or option is unknown, misspelled or impossible."""


class StorageError(HeadraceError):
    """A log dir can't be used: locked, of another broker, of a newer format, or failing."""


class DeadlineExceededError(HeadraceError):
    """An operation did not succeed before its deadline, though it was retried."""


class KafkaError(HeadraceError):
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or self.code.meaning)

    @property
    def retriable(self) -> bool:
        return self.code.retriable

    def as_outcome(self) -> Self:
        """Return this error without its traceback, to be kept as the outcome of an operation: the
        traceback's frames refer to the error and to a whole request, and so would stay in memory
        until a garbage collection."""
        self.__context__ = None
        return self.with_traceback(None)


class AuthenticationError(KafkaError):
    """The client or the broker could not prove its identity: a wrong password, an unknown
    certificate authority, a wrong host name. It is final: another try with the same secrets fails
    again, and may lock an account."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class OffsetOutOfRangeError(KafkaError):
    """The requested offset is outside the log; the error carries the valid half-open range."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(
        self, message: str = "", *, log_start_offset: int = -1, log_end_offset: int = -1
    ) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that a client has read are gone, and others may be at their offsets: a replica
    without them was elected leader.
    """

    def __init__(self, message: str = "", *, offset: int = -1, truncation_offset: int = -1) -> None:
        """`offset` is the next one that the client wanted to read. From `truncation_offset` on the
        log has other records than the client has read.
        """
        super().__init__(message, log_end_offset=truncation_offset)
        self.offset = offset
        self.truncation_offset = truncation_offset


class CorruptRecordError(KafkaError):
    """Bytes that are not an intact record batch."""

    code = ErrorCode.CORRUPT_MESSAGE


class DecompressedTooLargeError(CorruptRecordError):
    """Compressed data decompresses to more bytes than the reader allows."""


class InvalidRecordError(KafkaError):
    """An intact batch that must not be stored (wrong count, control batch from a client)."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str = "", *, records: Sequence[tuple[int, str]] = ()) -> None:
        """`records`: the index in the batch, from 0, of each bad record that is reported, with the
        reason; empty where the batch as a whole is wrong."""
        super().__init__(message)
        self.records = records


class InvalidTimestampError(KafkaError):
    """The timestamps of a batch are further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class RecordTooLargeError(KafkaError):
    """A batch is larger than max.message.bytes, or decompresses to more than the broker allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLargeError(KafkaError):
    """One request has more bytes for a partition than a segment can hold."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedForMessageFormatError(KafkaError):
    """A message of magic 0 or 1."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionError(KafkaError):
    """An unknown compression codec, or one whose library is missing."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OutOfOrderSequenceError(KafkaError):
    """A producer's sequence has a gap."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class EarlierBatchExpectedError(OutOfOrderSequenceError):
    """A producer of which the log has nothing begins in the middle: an earlier batch may be under
    way. The producer has to send it again, with what comes before it, if anything does."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS
    """Every client retries this code, in order; OUT_OF_ORDER_SEQUENCE_NUMBER is fatal to some."""


class TooManyProducersError(KafkaError):
    """A log has as many producers as it may remember; the producers that it knows go on."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS
    """Every client retries this code."""


class InvalidProducerEpochError(KafkaError):
    """The producer was fenced by a newer epoch."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(KafkaError):
    """A request of a producer does not fit the state of its transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(KafkaError):
    """A transaction marker comes from a coordinator that was replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class InvalidRequestError(KafkaError):
    """A frame that can't be decoded or contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersionError(KafkaError):
    """The broker does not serve this version of the request."""

    code = ErrorCode.UNSUPPORTED_VERSION


class LogStorageError(KafkaError):
    """A write or read of a log's files failed."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogBusyError(LogStorageError):
    """The log can't do this now, though nothing is wrong with it; the same call succeeds once the
    missing resource is available again."""


class LogFullError(LogBusyError):
    """The disk has no room. The log is unchanged, and takes records again when there is room."""


class LogShortageError(LogBusyError):
    """The process or the machine has no descriptors or no memory left. The log is unchanged, or
    remembers the rest of a change that was cut short (`PartitionLog.is_cut_short`)."""


class LogDirError(LogStorageError):
    """The disk of a log dir failed, so that all logs in it are in doubt."""
