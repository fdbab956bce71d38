"""The column ``parsed``: a record's value as JSON or Avro, beside the value itself, which is always kept.

A value that does not fit the schema has null there, and only such a value and a null value have. Spark's own parsers do
not make that difference: they answer a struct of nulls for what they cannot read. So JSON is read with a column for
what is corrupt, and Avro as the only field of a record around it, which takes no bytes of its own in Avro's encoding.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .archive_failures import said, spark_failures
from .archive_layout import ArchiveError
from .connector import SparkUnavailableError, find_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_CORRUPT = "moldau_corrupt_value"
_WRAPPER = "moldau_wrapper"
# Schema registries put a byte of zero and the id of a schema (4 bytes) before what is encoded by it.
_REGISTRY_MAGIC = b"\x00"
_REGISTRY_HEADER_BYTES = 5


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """How values are encoded. ``text``: for JSON columns as in SQL or Spark's JSON of a struct, for Avro its JSON."""

    format: Literal["json", "avro"]
    text: str
    # Each value begins with the header of a schema registry.
    registry_header: bool = False


def read_schema_text(argument: str) -> str:
    """The text that an option gives: itself, or after ``@`` the content of a file."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"the schema cannot be read, {argument[1:]}: {error}") from error


def check_avro(text: str) -> None:
    """ArchiveError unless the text is a record's schema; its fields are for Spark to judge."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ArchiveError(f"the Avro schema is not JSON: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ArchiveError('the Avro schema must be of a record: {"type": "record", "name": ..., "fields": [...]}')


def parsed_column(spark: SparkSession, schema: ValueSchema) -> Column:
    """The column ``parsed``, of the columns of Kafka's source; ArchiveError for a schema that Spark refuses."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    value = F.col("value")
    if schema.registry_header:
        has_header = F.substring(value, 1, 1) == F.lit(_REGISTRY_MAGIC)
        value = F.when(has_header, F.expr(f"substring(value, {_REGISTRY_HEADER_BYTES + 1})"))
    try:
        column = _json(spark, schema, value) if schema.format == "json" else _avro(schema, value)
        # Spark looks at a schema when the column is used.
        empty = spark.createDataFrame([], "value binary")
        _ = empty.select(column).schema
    except spark_failures() as error:
        raise ArchiveError(f"Spark does not take the {schema.format} schema: {said(error)}") from error
    return column.alias("parsed")


def _json(spark: SparkSession, schema: ValueSchema, value: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    fields = json_fields(spark, schema.text)
    if _CORRUPT in fields.names:
        raise ArchiveError(f"the JSON schema has a column {_CORRUPT}, a name that is used here: call it otherwise")
    with_corrupt = StructType([*fields.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(value.cast("string"), with_corrupt, options)
    fits = read.isNotNull() & read[_CORRUPT].isNull()
    for required in (each for each in fields.fields if not each.nullable):
        fits = fits & read[required.name].isNotNull()
    return F.when(fits, F.struct(*(read[each.name].alias(each.name) for each in fields.fields)))


def json_fields(spark: SparkSession, text: str) -> Any:
    """The StructType of a text: ``id INT NOT NULL, name STRING``, or the JSON that ``StructType.json()`` gives."""
    from pyspark.sql.types import StructType

    try:
        found = _struct_of_json(text) if text.startswith("{") else _type_of_ddl(spark, text)
    except spark_failures() as error:
        raise ArchiveError(f"the JSON schema is not understood: {said(error)}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise ArchiveError("the JSON schema must name columns: 'id INT, name STRING'")
    return found


def _struct_of_json(text: str) -> Any:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"the JSON schema is not understood ({error!r}): give columns as in SQL, 'id INT, name STRING', or Spark's "
            "JSON of a struct"
        ) from error


def _type_of_ddl(spark: SparkSession, text: str) -> Any:
    """What a function that returns this type is said to return: Spark 3 has no other public way to a type's words."""
    from pyspark.sql import functions as F  # noqa: N812

    typed = F.udf(lambda row: row, returnType=text)
    return spark.range(0).select(typed("id")).schema.fields[0].dataType


def _avro(schema: ValueSchema, value: Column) -> Column:
    from pyspark.sql.avro.functions import from_avro

    wrapper = {
        "type": "record",
        "name": _WRAPPER,
        "fields": [{"name": "value", "type": json.loads(schema.text)}],
    }
    return from_avro(value, json.dumps(wrapper), {"mode": "PERMISSIVE"})["value"]


def avro_packages(conf: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings that give Spark its Avro module, which it does not contain, besides what ``conf`` names already.

    As with the connector it is one of ``MOLDAU_SPARK_JARS`` where that is set, and otherwise fetched.
    """
    spark = find_spark(environment)
    folder = environment.get("MOLDAU_SPARK_JARS")
    jar = f"spark-avro_{spark.scala_version}-{spark.spark_version}.jar"
    if any(spark.jars.glob(f"*{jar}")):
        return {}
    if not folder:
        name, item = "spark.jars.packages", f"org.apache.spark:spark-avro_{spark.scala_version}:{spark.spark_version}"
    else:
        found = sorted(Path(folder).glob(f"*{jar}"))
        if not found:
            raise SparkUnavailableError(f"{folder} is to hold Spark's Avro module, too; there is no *{jar}")
        name, item = "spark.jars", str(found[-1].resolve())
    return {name: ",".join(filter(None, (conf.get(name), item)))}
