"""Run a benchmark: it prints each figure beside a ceiling measured in the same run, or its goal.

benchmarks:
  avro          Avro in Spark beside from_avro and to_avro on Apache Kafka (downloads 600 MB)
  beside-kafka  Spark's Kafka connector on Apache Kafka beside ours (downloads 600 MB)
  clients       librdkafka and Kafka's client for Java, on ours and on Apache Kafka
  codec         rows to record batches and back, and Avro records to columns, without a broker
  consume       records a second, beside other clients for Python
  drain         how long producers wait while a broker is drained, beside before
  failover      how long partitions are without a leader when brokers die or stop
  groups        large consumer groups: pauses, heartbeats, joins, and our consumers' restarts
  hostile       how much clients that send the most expensive requests slow down others
  hosts         many brokers on three hosts: their start, creation, the loss of a host, its return
  idle          processor time and memory of brokers without work
  kills         how long producers wait when a broker is killed or hangs, and if records are lost
  lake          topics into Delta tables: rates, when rows are visible, memory, beside Spark
  log           the log on its disk: appends, reads, recovery, memory, shared flushes
  metrics       what metrics for Prometheus cost a broker
  one-host      several brokers that share a host beside one: processor time of the same load
  produce       records a second, beside other clients for Python
  replication   acks=all beside acks=1, and how fast a replica that lost its disk catches up
  requests      what the largest request of each kind costs a broker, or each step of one record
  scale         what many partitions cost: creation, metadata, memory, failovers, restarts
  secured       what TLS, log-ins and access rules cost, beside Apache Kafka, and how quotas hold
  spark-phases  where the time of a small micro-batch goes, phase by phase
  spark-read    batch and streaming reads through Spark, with a broker
  spark-write   batch and streaming writes through Spark, exactly once and at least once
  typed         typed topics beside JSON on Apache Kafka, and beside Apache Fluss (downloads 830 MB)
  wire          produce and fetch over TCP, with a broker

examples:
  headrace bench codec
  headrace bench spark-read --help
"""

import argparse
import importlib

from storage_engine.tools.local.signals import signals_interrupt

NAMES = (
    "avro",
    "beside-kafka",
    "clients",
    "codec",
    "consume",
    "drain",
    "failover",
    "groups",
    "hostile",
    "hosts",
    "idle",
    "kills",
    "lake",
    "log",
    "metrics",
    "one-host",
    "produce",
    "replication",
    "requests",
    "scale",
    "secured",
    "spark-phases",
    "spark-read",
    "spark-write",
    "typed",
    "wire",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench`: each benchmark has its own, read by `run`."""
    parser.add_argument(
        "benchmark", choices=NAMES, metavar="BENCHMARK", help="name of the benchmark"
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments for the benchmark, such as --help"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench`, importing only the benchmark that was asked for."""
    module = importlib.import_module(f"benchmarks.{args.benchmark.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"headrace bench {args.benchmark}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    arguments = parser.parse_args(args.arguments)
    with signals_interrupt():
        status: int = module.run(arguments)
    return status
