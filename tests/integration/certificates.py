"""A certificate authority for tests. Its keys are made for each run and stay in its folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = x509.IPAddress(ip_address("127.0.0.1"))
DAY = timedelta(days=1)


class Authority:
    """
    Signs certificates. `certificate` is the file of its own certificate.

    Args:
        folder: where the files go.
        name: its name, and the prefix of its files' names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Make the key and sign its own certificate."""
        self._folder, self._name = folder, name
        self.certificate = folder / f"{name}.pem"
        self.renew()

    def renew(self) -> None:
        """Replace the key in the same file. Certificates signed before are no longer trusted."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(self._name, self._key, DAY, x509.BasicConstraints(ca=True, path_length=None))
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign(self, owner: str, *, lives: timedelta = DAY, host: x509.GeneralName = LOOPBACK) -> Path:
        """
        Write a key and a certificate for it into one file, and return the file.

        Args:
            owner: the common name.
            lives: how long it is valid from now; negative if it has expired.
            host: the host that it is for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(owner, key, lives, x509.SubjectAlternativeName([host]))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"{self._name}-{owner}.pem"
        file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
        return file

    def _signed(
        self, owner: str, key: ec.EllipticCurvePrivateKey, lives: timedelta, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(owner))
            .issuer_name(_named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lives)
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _named(owner: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, owner)])
