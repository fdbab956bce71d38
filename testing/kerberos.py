"""A Kerberos realm for tests: MIT's KDC on a free port, with its own files, as any user."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from moldau.testing.apache_kafka import free_ports
from moldau.testing.requirements import require_program

REALM: Final = "MOLDAU.TEST"
_READY: Final = "commencing operation"
_ATTEMPTS: Final = 5
_START_S: Final = 180.0


class KerberosRealm:
    """A KDC and its principals. ``environment`` makes programs use it."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is new, or empty. The running test ends if a program is missing (`requirements`)."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._configuration = folder / "krb5.conf"
        for name in ("krb5kdc", "kdb5_util", "kadmin.local"):
            require_program(name)
        self._kdc: subprocess.Popen[bytes] | None = None
        self._log: list[str] = []

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for MIT's library and for Java."""
        return {
            "KRB5_CONFIG": str(self._configuration),
            "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self._folder}/tickets",
            "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={self._configuration}",
        }

    def __enter__(self) -> Self:
        for _ in range(_ATTEMPTS):
            self._configure(free_ports(1)[0])
            if not (self._folder / "principal").exists():
                self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "secret")
            if self._start():
                return self
        raise AssertionError("the KDC did not start:\n" + "".join(self._log))

    def __exit__(self, *_: object) -> None:
        assert self._kdc is not None
        self._kdc.terminate()
        self._kdc.wait(60)

    def add(self, principal: str, keytab: str) -> Path:
        """Add a principal with a random key, and write its key to a new file."""
        path = self._folder / keytab
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        assert path.exists()
        return path

    def log_in(self, principal: str, keytab: Path) -> None:
        """Get a ticket for the programs with this environment."""
        self._run("kinit", "-k", "-t", str(keytab), principal)

    def _configure(self, port: int) -> None:
        self._configuration.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\n"
            # Names are those of the test, whatever the name servers of this machine say.
            "dns_lookup_kdc = false\ndns_lookup_realm = false\ndns_canonicalize_hostname = false\nrdns = false\n"
            "udp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n  kdc = 127.0.0.1:{port}\n}}\n"
            "[logging]\nkdc = STDERR\n"
        )
        (self._folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n{REALM} = {{\n  database_name = {self._folder}/principal\n"
            f"  key_stash_file = {self._folder}/stash\n  acl_file = {self._folder}/acl\n}}\n"
        )

    def _start(self) -> bool:
        """False: it has exited, because another process was faster to take the port."""
        command = [require_program("krb5kdc"), "-n"]
        self._kdc = kdc = subprocess.Popen(command, stderr=subprocess.PIPE, env={**self.environment})
        ready = threading.Event()

        def read() -> None:
            assert kdc.stderr is not None
            for line in kdc.stderr:
                self._log.append(line.decode(errors="replace"))
                if _READY in self._log[-1]:
                    ready.set()
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        assert ready.wait(_START_S), "the KDC does not start"
        return any(_READY in line for line in self._log) and kdc.poll() is None

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [require_program(command[0]), *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self.environment},
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
