"""Settings: which ones exist, how a value is written, and where a value comes from.

One table (``topic.py``, ``group.py`` and the ``broker*.py`` modules, in the vocabulary of ``definition.py``) feeds
all code that uses settings: reading ``server.properties``, ``--set`` and ``KAFKA_...`` variables (``sources.py``), the
values in effect (``broker_config.py``), the checks at startup (``checks.py``), the overrides of topics and groups, the
server's responses to DescribeConfigs, and the documentation (``reference.py``).
Names, types, defaults and ranges are Apache Kafka 4.3's; each different default is stated with its setting.

The package does not depend on the rest of Moldau and imports none of it.
"""
