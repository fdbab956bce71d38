"""The web console: a separate process that is an ordinary client of any Kafka cluster (docs/console.md)."""
