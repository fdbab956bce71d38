"""Summaries of Spark's errors. Some are exceptions of pyspark, some of its bridge to Java (py4j)."""

from __future__ import annotations

import re

_MOST = 400
# The last line of a Python traceback; Java's lines begin differently.
_OF_PYTHON = re.compile(r"([a-z_]\w*\.)*[A-Z]\w*Error: ")


def spark_failures() -> tuple[type[Exception], ...]:
    """The exceptions with which Spark reports a failure, for an ``except`` clause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def error_summary(error: Exception) -> str:
    """The most informative line of an error: the Python error of a task, the last cause, or else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    pythons = [line for line in lines if _OF_PYTHON.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # An error of the bridge begins "An error occurred while calling o12.save.", followed by Java's text.
    javas = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    line = (pythons[-1:] or causes[-1:] or javas[:1] or lines[:1] or [type(error).__name__])[0]
    return line if len(line) <= _MOST else line[:_MOST] + " ..."
