"""Short forms of AlterConfigs and IncrementalAlterConfigs for tests."""

from __future__ import annotations

from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages import incremental_alter_configs as incremental


def alter(
    *resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False
) -> legacy.AlterConfigsRequest:
    """AlterConfigs. For each resource: its type, its name, and all of its configs."""
    return legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


def change(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs. For each resource: its type, its name, and key, operation and value of each change."""
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )
