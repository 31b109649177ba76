"""Values of znodes, for tests with hypothesis."""

from hypothesis import strategies as st

from storage_engine.core.ids import BrokerId, TopicPartition

ids = st.integers(0, 2**31 - 1).map(BrokerId)
replicas = st.lists(ids, min_size=1, max_size=5, unique=True).map(tuple)
topics = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,19}", fullmatch=True)
hosts = st.from_regex(r"[a-zA-Z0-9_-]{1,63}(\.[a-zA-Z0-9_-]{1,63}){0,2}\.?", fullmatch=True) | (
    st.ip_addresses().map(str) | st.just("fe80::1%eth0")
)
partitions = st.builds(TopicPartition, topics, st.integers(0, 9999))
