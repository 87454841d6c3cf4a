"""Real servers for the tests: each on a free port of this machine, with its own folder, ended by its process id."""

from __future__ import annotations

from .browser import chromium
from .kafka_broker import KafkaBroker, KafkaServer, kafka
from .object_stores import AzureServer, MortalS3, S3Server, azurite, rclone, seaweedfs
from .postgres import PostgresServer, postgres
from .spark import SparkCluster, kafka_conf, s3a_conf, spark_cluster

__all__ = [
    "AzureServer",
    "KafkaBroker",
    "KafkaServer",
    "MortalS3",
    "PostgresServer",
    "S3Server",
    "SparkCluster",
    "azurite",
    "chromium",
    "kafka",
    "kafka_conf",
    "postgres",
    "rclone",
    "s3a_conf",
    "seaweedfs",
    "spark_cluster",
]
