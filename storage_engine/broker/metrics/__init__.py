"""A broker's metrics for Prometheus: the names, and the sources of the figures.

    catalog       every name, with its labels and its meaning
    exposition    the samples of one scrape, and their text
    *_figures     read the parts of a broker, in pieces
    scrapes       one scrape: all of them, one after the other
    broker_clock  how long the event loop's turns take

Nothing here is called unless `metrics.listener` is set. Names with `kafka_` are those that Kafka's
JMX exporter and kafka_exporter give, so that boards and rules for them work.
"""
