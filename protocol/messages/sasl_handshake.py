"""SaslHandshake (API key 17): versions 0-1, never flexible.

Chooses the SASL mechanism of a connection. After version 0 the tokens follow as bare frames, after version 1 in
SaslAuthenticate requests (KIP-152). Never flexible: clients up to 2.4 negotiate its version wrongly (KAFKA-9577).
"""

from ..schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=17, versions="0-1", listeners=("broker", "controller")):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
