"""The command line: ``moldau serve`` and the tools around it.

``main.py`` is the entry, ``serve.py`` starts the server without loading anything that the server does not need, and
``group.py`` finds the other commands, each in a module of its own that is imported when it is called. The tools talk
to a server as any client does, with kafka-python (``client.py``): they work against Apache Kafka as well.
"""
