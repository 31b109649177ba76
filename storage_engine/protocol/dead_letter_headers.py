"""Names of the headers of a dead letter: a record that was rejected, with the reason and where it
came from. All values are UTF-8, so that any client can read them.

    headrace.dead-letter.topic       name of the topic
    headrace.dead-letter.partition   decimal
    headrace.dead-letter.offset      decimal
    headrace.dead-letter.timestamp   decimal, ms since 1970; -1: none
    headrace.dead-letter.reason      text

A record that was sent back keeps them but for the reason. Source: R-CLI4; Kafka
Connect's dead letter queue (KIP-298) has headers of the same kind.
"""

PREFIX = "headrace.dead-letter."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
TIMESTAMP = PREFIX + "timestamp"
REASON = PREFIX + "reason"
