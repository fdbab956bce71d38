"""The column ``parsed``: a record's value parsed as JSON or Avro. The value itself is always stored, too.

The column is null for a value that does not match the schema and for a null value, and for no other value. Spark's own
parsers do not make this distinction: they return a struct of nulls for what they cannot parse. So JSON is parsed with a
column for corrupt records. Avro is parsed as the only field of a wrapper record, which takes no bytes in the encoding.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .archive_failures import error_summary, spark_failures
from .archive_layout import ArchiveError
from .connector import SparkUnavailableError, find_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_CORRUPT = "moldau_corrupt_value"
_WRAPPER = "moldau_wrapper"
# Clients of a schema registry put a zero byte and a schema id (4 bytes) before the encoded value.
_REGISTRY_MAGIC = b"\x00"
_REGISTRY_HEADER_BYTES = 5


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """How values are encoded. ``text``: for JSON, columns in SQL or Spark's JSON of a struct; for Avro, its schema."""

    format: Literal["json", "avro"]
    text: str
    # Each value begins with the header of a schema registry client.
    registry_header: bool = False


def read_schema_text(argument: str) -> str:
    """The schema text of an option: the argument itself, or after ``@`` the content of a file."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"the schema cannot be read, {argument[1:]}: {error}") from error


def check_avro(text: str) -> None:
    """ArchiveError unless the text is the schema of a record. Spark checks its fields."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ArchiveError(f"the Avro schema is not JSON: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ArchiveError('the Avro schema must describe a record: {"type": "record", "name": ..., "fields": [...]}')


def parsed_column(spark: SparkSession, schema: ValueSchema) -> Column:
    """The column ``parsed``, from the columns of Kafka's source; ArchiveError for a schema that Spark rejects."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual alias

    value = F.col("value")
    if schema.registry_header:
        has_header = F.substring(value, 1, 1) == F.lit(_REGISTRY_MAGIC)
        value = F.when(has_header, F.expr(f"substring(value, {_REGISTRY_HEADER_BYTES + 1})"))
    try:
        column = _json(spark, schema, value) if schema.format == "json" else _avro(schema, value)
        # Spark checks a schema when the column is used.
        empty = spark.createDataFrame([], "value binary")
        _ = empty.select(column).schema
    except spark_failures() as error:
        raise ArchiveError(f"Spark rejects the {schema.format} schema: {error_summary(error)}") from error
    return column.alias("parsed")


def _json(spark: SparkSession, schema: ValueSchema, value: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    fields = json_fields(spark, schema.text)
    if _CORRUPT in fields.names:
        raise ArchiveError(f"the JSON schema has a column {_CORRUPT}, which is a reserved name: rename the column")
    with_corrupt = StructType([*fields.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(value.cast("string"), with_corrupt, options)
    fits = read.isNotNull() & read[_CORRUPT].isNull()
    for required in (each for each in fields.fields if not each.nullable):
        fits = fits & read[required.name].isNotNull()
    return F.when(fits, F.struct(*(read[each.name].alias(each.name) for each in fields.fields)))


def json_fields(spark: SparkSession, text: str) -> Any:
    """The StructType of a text: ``id INT NOT NULL, name STRING``, or the JSON that ``StructType.json()`` returns."""
    from pyspark.sql.types import StructType

    try:
        found = _struct_of_json(text) if text.startswith("{") else _type_of_ddl(spark, text)
    except spark_failures() as error:
        raise ArchiveError(f"the JSON schema cannot be parsed: {error_summary(error)}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise ArchiveError("the JSON schema must name columns: 'id INT, name STRING'")
    return found


def _struct_of_json(text: str) -> Any:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"the JSON schema cannot be parsed ({error!r}): use columns as in SQL, 'id INT, name STRING', or Spark's "
            "JSON of a struct"
        ) from error


def _type_of_ddl(spark: SparkSession, text: str) -> Any:
    """The return type of a function declared with this text: Spark 3 has no other public parser for types."""
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
    """``conf`` plus the settings that give Spark its Avro module, which Spark itself does not contain.

    Like the connector, the module is in ``MOLDAU_SPARK_JARS`` if that is set, and downloaded otherwise.
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
            raise SparkUnavailableError(f"{folder} must also contain Spark's Avro module; it has no *{jar}")
        name, item = "spark.jars", str(found[-1].resolve())
    return {name: ",".join(filter(None, (conf.get(name), item)))}
