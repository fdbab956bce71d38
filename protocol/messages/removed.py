"""APIs of the ZooKeeper days that Apache Kafka 4 removed.

Their keys stay reserved, and their names appear in logs; they have no supported versions.
"""

from ..schema import Request, Response


class ControlledShutdownRequest(Request, api_key=7, versions="none"):
    pass


class ControlledShutdownResponse(Response, api_key=7, versions="none"):
    pass


class LeaderAndIsrRequest(Request, api_key=4, versions="none"):
    pass


class LeaderAndIsrResponse(Response, api_key=4, versions="none"):
    pass


class StopReplicaRequest(Request, api_key=5, versions="none"):
    pass


class StopReplicaResponse(Response, api_key=5, versions="none"):
    pass


class UpdateMetadataRequest(Request, api_key=6, versions="none"):
    pass


class UpdateMetadataResponse(Response, api_key=6, versions="none"):
    pass
