"""The consumer of document 002: a group whose members share partitions through ZooKeeper.

    znodes ──► NodeView ──► GroupMember ──► Ledger of each stream ◄── MessageStream, in user threads
                 (watches)    (decides, on the loop of LoopThread)

Rule: a message is handed out by the owner of its partition's znode alone, and by nobody whose
session may have expired. Source: R-CLI3.
"""
