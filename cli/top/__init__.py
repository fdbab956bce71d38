"""``moldau top``: a live table of a cluster.

``sampling.py`` asks the cluster and the endpoints of metrics (``exposition.py``), ``report.py`` computes rates from two
samples, ``screen.py`` draws a report, ``keyboard.py`` owns the terminal, and ``command.py`` connects them.
"""
