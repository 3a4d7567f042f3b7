"""Certificate authority of the proxy: its key is made in the proxy's process, and each host gets a certificate."""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_MAX_CONTEXTS = 64
_AUTHORITY_DAYS, _LEAF_DAYS, _REMINT_DAYS = 3650, 30, 7


class CertificateAuthority:
    """Makes certificates for hosts whose TLS the proxy terminates.

    Parameters
    ----------
    saved : bytes
        Key and certificate of the process before this one; empty to make new ones.
    """

    def __init__(self, saved: bytes = b"") -> None:
        if saved:
            key = serialization.load_pem_private_key(saved, None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key, self._certificate = key, x509.load_pem_x509_certificate(saved)
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._certificate = self._make_own_certificate()
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, tuple[ssl.SSLContext, datetime]] = OrderedDict()

    @property
    def certificate(self) -> str:
        """Certificate of the authority, in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def save(self) -> bytes:
        """Return key and certificate in PEM, for the process after this one."""
        return _key_pem(self._key) + self.certificate.encode()

    def context_for(self, host: str) -> ssl.SSLContext:
        """Return the server's side of TLS for a host; the least recently used ones are made again."""
        context, made_at = self._contexts.pop(host, (None, datetime.now(timezone.utc)))
        if context is None or datetime.now(timezone.utc) - made_at > timedelta(days=_REMINT_DAYS):
            context, made_at = self._make_context(host), datetime.now(timezone.utc)
        self._contexts[host] = context, made_at
        while len(self._contexts) > _MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return context

    def _make_context(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = _name_check(host)
        chain = self._make_leaf(host).public_bytes(serialization.Encoding.PEM) + self.certificate.encode()
        descriptor = os.memfd_create("certificate")  # the library reads files only
        try:
            os.write(descriptor, _key_pem(self._leaf_key) + chain)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context

    def _make_leaf(self, host: str) -> x509.Certificate:
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        issuer = self._certificate
        key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = _builder("jupyter_exec_ext host", issuer.subject, self._leaf_key.public_key(), _LEAF_DAYS)
        return (
            builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _make_own_certificate(self) -> x509.Certificate:
        name = f"jupyter_exec_ext egress proxy {os.urandom(4).hex()}"
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "digital_signature"), False
        )
        public = self._key.public_key()
        return (
            _builder(name, subject, public, _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    no_password = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)


def _name_check(host: str) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]:
    """Return a check that the client's server name is the host it asked the proxy for; addresses have none."""
    is_address = not host.rpartition(".")[2].strip("0123456789") or ":" in host

    def check(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
        is_same = name is None if is_address else (name or "").lower() == host
        return None if is_same else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check
