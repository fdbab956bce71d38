"""Spark's errors in few words. Some come as exceptions of pyspark, some as those of its bridge to Java."""

from __future__ import annotations

import re

_MOST = 400
# The last line of a traceback; Java's lines begin otherwise.
_OF_PYTHON = re.compile(r"([a-z_]\w*\.)*[A-Z]\w*Error: ")


def spark_failures() -> tuple[type[Exception], ...]:
    """The exceptions in which Spark says that something went wrong, to be named in an ``except``."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def said(error: Exception) -> str:
    """The telling line of Spark's many: the error of a task in Python, the last cause, or else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    pythons = [line for line in lines if _OF_PYTHON.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # A bare error of the bridge begins "An error occurred while calling o12.save." and has Java's words after it.
    javas = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    told = (pythons[-1:] or causes[-1:] or javas[:1] or lines[:1] or [type(error).__name__])[0]
    return told if len(told) <= _MOST else told[:_MOST] + " ..."
