"""The schema registry: Confluent's REST API on the topic ``_schemas`` of any Kafka cluster (docs/registry.md)."""
