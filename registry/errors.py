"""Errors of the REST API: an HTTP status, an error code, and a message, which become ``{error_code, message}``.

The codes are those of Confluent's API reference. The first three digits are the status.
"""

from __future__ import annotations


class RegistryError(Exception):
    """A request that the registry refuses or cannot serve."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status, the first three digits of the code."""
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)
