"""Settings: what can be configured, how a value is written, where it came from.

One table (``topic.py``, ``group.py`` and the ``broker*.py`` modules, in the vocabulary of ``definition.py``) feeds
everything that knows about settings: reading ``server.properties``, ``--set`` and ``KAFKA_...`` variables
(``sources.py``), what is in force (``broker_config.py``), whether a server may start with it (``checks.py``), the
overrides of topics and groups, the server's answers to DescribeConfigs, and the documentation (``reference.py``).
Names, types, defaults and ranges are Apache Kafka 4.3's; where a default differs, the setting says so.

The package knows nothing of the rest of Moldau and imports none of it.
"""
