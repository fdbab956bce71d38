"""The Python interpreter in which tasks run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_this_python(spark: SparkSession) -> None:
    """Run tasks on this machine in the Python that has moldau. Spark's default is the first python3 on the PATH."""
    context = spark.sparkContext
    if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
