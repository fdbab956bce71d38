"""SASL exchanges without a server."""

from __future__ import annotations

from moldau.security.sasl import SaslExchange


def evaluate(exchange: SaslExchange, token: bytes) -> bytes:
    """The response to a token, after the job that it may need."""
    answer = exchange.evaluate(token)
    return answer if isinstance(answer, bytes) else answer()
