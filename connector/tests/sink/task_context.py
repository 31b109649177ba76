"""The local properties of a task of a streaming query."""

from uuid import UUID

RUN = UUID("d81e25c5-1cd4-4a19-9f47-1f8ff46f182c")


class Context:
    """Stands for TaskContext, in a task of a streaming query."""

    group = str(RUN)
    description = f"a name\nid = query\nrunId = {RUN}\nbatch = 7"
    application, started, execution = "local-1", "1700000000000", "30"

    @classmethod
    def get(cls):
        return cls()

    def getLocalProperty(self, name):
        properties = {
            "sql.streaming.queryId": "query",
            "streaming.sql.batchId": "7",
            "spark.jobGroup.id": self.group,
            "spark.job.description": self.description,
            "spark.app.id": self.application,
            "spark.app.startTime": self.started,
            "spark.sql.execution.root.id": self.execution,
        }
        return properties.get(name)
