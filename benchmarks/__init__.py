"""Benchmarks of Moldau and Apache Kafka: the same work, by the same programs, on the same machine, in the same run."""
