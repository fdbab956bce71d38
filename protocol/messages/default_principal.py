"""A principal as brokers send it to the controller inside Envelope (KIP-590).

Preceded by its version as an int16.
"""

from ..schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
