"""A member of a consumer group with confluent-kafka, which is librdkafka: see ``group_member``."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from moldau.testing.clients.group_member import Options, begin, report, report_consumed


def _code(error: KafkaError) -> str:
    """The name of the error's code. A fatal error contains only the text of the error that caused it."""
    if error.code() == KafkaError._FATAL:
        for number, cause in _FATAL_CAUSES.items():
            if KafkaError(number).str() in error.str():
                return cause
    return str(error.name())


_FATAL_CAUSES = {KafkaError.FENCED_INSTANCE_ID: "FENCED_INSTANCE_ID"}


def _settings(options: Options) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if options.instance_id is not None:
        settings["group.instance.id"] = options.instance_id
    if options.protocol == "consumer":  # the server determines the session timeout
        return {**settings, "group.protocol": "consumer"}
    return {
        **settings,
        "group.protocol": "classic",
        "partition.assignment.strategy": {"cooperative": "cooperative-sticky"}.get(options.protocol, options.protocol),
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": options.heartbeat_interval_ms,
    }


def main() -> None:
    """Be a member until the standard input ends."""
    options, leaving = begin()
    consumer = Consumer(_settings(options))

    def partitions(found: list[Any]) -> list[int]:
        return [each.partition for each in found]

    # The client does not show its generation.
    consumer.subscribe(
        [options.topic],
        on_assign=lambda _, found: report("assigned", partitions=partitions(found), generation=None),
        on_revoke=lambda _, found: report("revoked", partitions=partitions(found)),
        on_lost=lambda _, found: report("lost", partitions=partitions(found)),
    )
    uncommitted = False
    while not leaving.is_set():
        received = consumer.consume(500, timeout=0.1)
        for error in (each.error() for each in received):
            if error is not None:
                report("error", code=_code(error), reason=error.str())
        records = [each for each in received if each.error() is None]
        report_consumed((each.partition(), each.offset()) for each in records)
        if not records and not uncommitted:
            continue
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Nothing to commit: another member owns the consumed partitions by now.
            uncommitted = error.args[0].code() != KafkaError._NO_OFFSET
            report("refused", reason=str(error))
        else:
            uncommitted = False
            report("committed")
    consumer.close()
    report("left")


if __name__ == "__main__":
    main()
