"""The command line: ``moldau serve`` and the tools around it.

``main.py`` is the entry point, ``serve.py`` starts the server and imports only what the server needs, and
``commands.py`` finds the other commands. Each command is a module that is imported when the command runs. The tools are
ordinary clients and also work with Apache Kafka: records go through kafka-python (``client.py``), which batches and
retries; single requests go through Moldau's own connection (``connection.py``, ``cluster.py``), which starts faster and
exposes the exact response.
"""
