"""The command line: ``moldau serve`` and the tools around it.

``main.py`` is the entry, ``serve.py`` starts the server without loading anything that the server does not need, and
``group.py`` finds the other commands, each in a module of its own that is imported when it is called. The tools talk
to a server as any client does, and work against Apache Kafka as well: records go through kafka-python (``client.py``),
which batches and retries; single questions through a connection of our own (``connection.py``, ``cluster.py``), which
starts faster and shows exactly what was answered.
"""
