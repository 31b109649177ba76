"""The consumer of a group whose members share partitions through ZooKeeper.

    znodes ──► NodeView ──► ZooKeeperGroupMember ──► StreamLedger ◄── MessageStream, in user threads
               (watches)    (decides, on the loop)   (one a stream)

Each partition is read by one stream of the group at a time. R-CLI3.
"""
