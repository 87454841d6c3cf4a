"""A Kafka sink at a cluster that asks who it is: the rights that it needs, and the secrets that it does not show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from holdfast.decide.chain import NOTHING
from holdfast.errors import BadValue, HoldfastError, SinkUnavailable, SinkUnfit
from holdfast.sinks import kafka_client
from holdfast.sinks.kafka import Kafka
from holdfast.testing.sinks import SCHEMA, holder, stage, step, words
from servers import KafkaServer, kafka

ASKING = """
listeners=SASL_PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="admin" password="admin" user_admin="admin" user_me="hunter2";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
"""


def user(name: str, password: str) -> dict[str, str]:
    known = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    return {**known, "sasl.username": name, "sasl.password": password}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with kafka(tmp_path_factory.mktemp("asking-kafka"), ASKING, user("admin", "admin")) as server:
        yield server


def test_it_needs_the_rights_that_are_written_down_and_no_other(asking: KafkaServer, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": asking.bootstrap, **user("admin", "admin")})
    admin.create_topics([NewTopic("rows", 2, 1)])["rows"].result(30)

    def grant(kind: ResourceType, name: str, *operations: AclOperation) -> None:
        for operation in operations:
            right = (kind, name, ResourcePatternType.LITERAL, "User:me", "*", operation, AclPermissionType.ALLOW)
            binding = AclBinding(*right)
            admin.create_acls([binding])[binding].result(30)

    sink = Kafka(asking.bootstrap, "rows", options=user("me", "hunter2"))
    with pytest.raises(SinkUnavailable, match="authorization failed"):
        sink.check(SCHEMA)
    grant(ResourceType.TOPIC, "rows", AclOperation.DESCRIBE_CONFIGS, AclOperation.DESCRIBE)
    with pytest.raises(SinkUnfit, match="no right to write to the topic rows"):
        sink.check(SCHEMA)
    grant(ResourceType.TOPIC, "rows", AclOperation.WRITE)
    used = (AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ, AclOperation.WRITE)
    grant(ResourceType.TOPIC, "rows.holdfast", *used)
    sink.check(SCHEMA)
    with pytest.raises(SinkUnavailable, match="Transactional Id authorization failed"):
        sink.fence(holder(0), NOTHING)
    grant(ResourceType.TRANSACTIONAL_ID, "rows.holdfast:rows", AclOperation.WRITE)
    sink.fence(holder(0), NOTHING)
    rows = stage(tmp_path, words(1))
    sink.commit(step(0), sink.prepare(step(0), rows), rows)
    marker = sink.look()
    sink.close()
    assert marker is not None
    assert marker.at == step(0).after


def test_a_secret_is_never_shown(asking: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "PATIENCE_SECONDS", 3.0)
    sink = Kafka(asking.bootstrap, "rows", options=user("me", "guess-work"))
    with pytest.raises(SinkUnavailable, match="Authentication failed") as caught:
        sink.look()
    assert "guess-work" not in shown(caught.value) + repr(sink) + sink.target
    misplaced = {**user("me", "guess-work"), "security.protocol": "guess-work"}
    with pytest.raises(BadValue, match="Invalid value") as refused:
        Kafka(asking.bootstrap, "rows", options=misplaced).look()
    assert "guess-work" not in shown(refused.value)


def shown(error: HoldfastError) -> str:
    assert error.__cause__ is None
    return f"{error} {error!r} {error.fields} {error.hint}"
