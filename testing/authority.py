"""Certificates for tests and development, made by the package `cryptography` in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Issued(NamedTuple):
    """A private key and a certificate, in PEM."""

    key: str
    certificate: str

    @property
    def pem(self) -> str:
        """Both, as a file in PEM has them."""
        return self.key + self.certificate

    def write(self, path: Path) -> Path:
        """Write both to a file."""
        path.write_text(self.pem)
        return path

    def pkcs12(self, password: str) -> bytes:
        """Both, in a store of the format PKCS12."""
        return pkcs12.serialize_key_and_certificates(
            b"moldau",
            self._private_key(),
            x509.load_pem_x509_certificate(self.certificate.encode()),
            None,
            serialization.BestAvailableEncryption(password.encode()),
        )

    def encrypted_key(self, password: str) -> str:
        """The key, encrypted with a password, in PEM."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self._private_key().private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    def _private_key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.key.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


class Authority:
    """A certificate authority. Its keys are P-256, which take a millisecond to create."""

    def __init__(self, name: str = "Moldau tests", *, days: int = 2) -> None:
        """A new authority, which is valid for so many days."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key, days=(-1, days), is_authority=True)

    @classmethod
    def load(cls, certificate: str, key: str) -> Self:
        """The authority with this certificate and this key, in PEM. Raises ValueError."""
        loaded = cls.__new__(cls)
        private = serialization.load_pem_private_key(key.encode(), None)
        loaded._certificate = x509.load_pem_x509_certificate(certificate.encode())
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not one of an elliptic curve")
        if private.public_key() != loaded._certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
        loaded._key = private
        loaded._name = loaded._certificate.subject
        return loaded

    @property
    def certificate(self) -> str:
        """Its certificate, in PEM."""
        return _pem(self._certificate)

    @property
    def key(self) -> str:
        """Its private key, in PEM."""
        return _private_pem(self._key)

    def issue(
        self, subject: str | x509.Name, *, days: tuple[int, int] = (-1, 2), alternative_names: Sequence[str] = ()
    ) -> Issued:
        """A certificate. ``subject``: a common name, or a whole name. It is valid for ``days`` from today."""
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(subject, key, days=days, alternative_names=alternative_names)
        return Issued(_private_pem(key), _pem(certificate))

    def server(self) -> Issued:
        """A certificate for a server on this machine."""
        return self.issue("localhost", alternative_names=("localhost", "127.0.0.1"))

    def pkcs12(self, password: str) -> bytes:
        """A trust store with its certificate, in the format PKCS12."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"moldau", None, None, [self._certificate], encryption)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: tuple[int, int] = (-1, 2),
        alternative_names: Sequence[str] = (),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            # Python 3.13 rejects certificates without these, and authorities that are not declared to sign.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        if alternative_names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in alternative_names]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
