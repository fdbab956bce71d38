"""Requests to a schema registry with Confluent's REST API, for example ``moldau registry``."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from .decoders import FormatError

_TIMEOUT_S: Final = 3.0
_MAX_REFERENCES: Final = 200
_MAX_DEPTH: Final = 20


class NotFoundError(Exception):
    """The registry does not have what was requested."""


class UnreachableError(Exception):
    """The registry does not respond, or refuses to; the message says so."""


class RegistryClient:
    """Requests of one registry. Threads share it."""

    def __init__(self, url: str) -> None:
        """``url`` may contain a user and a password, for a registry with basic authentication."""
        parts = urlsplit(url)
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        """The address without the password."""
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def get(self, path: str) -> Any:
        """The response to a GET request, parsed. Raises NotFoundError, UnreachableError."""
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    raise NotFoundError(path) from None
                reason = error.read(2000).decode("utf-8", "replace").strip()
            raise UnreachableError(f"the registry {self.url} responds {error.code}: {reason}") from None
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "reason", error))
            raise UnreachableError(f"the registry {self.url} cannot be reached: {reason}") from None

    def version(self, subject: str, version: str, query: str = "") -> Any:
        """A version of a subject: a number, or ``latest``. Raises NotFoundError, UnreachableError."""
        return self.get(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}{query}")

    def references(self, fields: Any, query: str = "") -> list[tuple[str, str]]:
        """Names and schemas of all references of a schema, each after those that it refers to itself.

        Raises NotFoundError with what is missing, UnreachableError, FormatError.
        """
        found: dict[str, str] = {}

        def visit(each: Any, depth: int) -> None:
            for reference in each.get("references") or ():
                name = reference["name"]
                if name in found:
                    continue
                if depth > _MAX_DEPTH or len(found) >= _MAX_REFERENCES:
                    raise FormatError("the schema has too many references")
                subject, version = reference["subject"], str(reference["version"])
                try:
                    referred = self.version(subject, version, query)
                except NotFoundError:
                    raise NotFoundError(f"{subject} version {version}") from None
                visit(referred, depth + 1)
                found[name] = referred["schema"]

        visit(fields, 0)
        return list(found.items())


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the password to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)
