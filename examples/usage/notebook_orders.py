# Databricks notebook source
# MAGIC %md
# MAGIC # Orders, checked
# MAGIC Reads a topic of orders (JSON), writes the good ones to one topic and the others, with the
# MAGIC reason, to another, exactly once. On the cluster: `%pip install headrace`.

# COMMAND ----------

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from connector import with_dead_letters

if TYPE_CHECKING:
    # Notebooks have these three.
    from pyspark.sql import SparkSession

    spark: SparkSession
    dbutils: Any
    display: Any

# COMMAND ----------

dbutils.widgets.text("servers", "127.0.0.1:9092")
dbutils.widgets.text("topic", "orders")
dbutils.widgets.text("checkpoint", "/tmp/orders-checkpoint")
servers = dbutils.widgets.get("servers")
topic = dbutils.widgets.get("topic")

# COMMAND ----------

orders = (
    spark.readStream.format("headrace")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load()
    .withColumn("order", F.from_json(F.expr("cast(value as string)"), "item string, amount int"))
)

# COMMAND ----------

# MAGIC %md
# MAGIC One query writes both topics, and one commit per micro-batch.

# COMMAND ----------

checked = with_dead_letters(
    orders,
    reason=F.when(F.col("order.item").isNull(), "no item").when(
        F.coalesce(F.col("order.amount"), F.lit(0)) <= 0, "no amount"
    ),
    topic=f"{topic}-rejected",
    accepted={
        "topic": F.lit(f"{topic}-checked"),
        "key": F.col("order.item"),
        "value": F.to_json("order"),
    },
)
query = (
    checked.writeStream.format("headrace")
    .option("kafka.bootstrap.servers", servers)
    .option("checkpointLocation", dbutils.widgets.get("checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

display(
    spark.read.format("headrace")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", f"{topic}-checked")
    .load()
    .groupBy(F.expr("cast(key as string)").alias("item"))
    .agg(F.sum(F.get_json_object(F.expr("cast(value as string)"), "$.amount")).alias("amount"))
    .orderBy("item")
)
