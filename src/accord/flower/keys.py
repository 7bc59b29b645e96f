"""Certificates for TLS, and a key pair for every node.

DIR/server/   ca.crt, server.crt, server.key, NAME.pub: for the machine of the SuperLink
DIR/NAME/     ca.crt, NAME.key: for the machine of one client, and for nobody else

The key of the certificate authority is not kept: it signs one certificate and is forgotten.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from accord.core.errors import AccordError
from accord.core.replacing import new_version
from accord.core.targets import found_at
from accord.data.schemes.sites import SITE

PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PLAIN = serialization.NoEncryption()
SERVER = "server"


def make_keys(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int) -> None:
    """Writes the certificates of a server that is reached as `hosts`, and a key per client.

    All files appear at once, so that an error leaves none.
    """
    _refuse(folder, hosts, clients, days)
    with new_version(folder) as partial:
        _make_keys(partial, hosts, clients, days)


def _make_keys(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int) -> None:
    authority, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = _certificate("Accord federation", authority, authority, days, hosts=())
    server = _certificate(hosts[0], key, authority, days, hosts=hosts)
    mine = folder / SERVER
    _write(mine / "ca.crt", issuer.public_bytes(PEM))
    _write(mine / "server.crt", server.public_bytes(PEM))
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, PLAIN)
    _write(mine / "server.key", private, secret=True)
    for name in clients:
        own = ec.generate_private_key(ec.SECP384R1())
        _write(folder / name / "ca.crt", issuer.public_bytes(PEM))
        secret = own.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN)
        _write(folder / name / f"{name}.key", secret, secret=True)
        public = own.public_key().public_bytes(SSH, serialization.PublicFormat.OpenSSH)
        _write(mine / f"{name}.pub", public + b"\n")


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    days: int,
    hosts: Sequence[str],
) -> x509.Certificate:
    """A certificate of the authority itself, or of the server that is reached as `hosts`."""
    own = not hosts
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Accord federation")])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=own, path_length=0 if own else None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    usage = {"digital_signature": not own, "key_cert_sign": own, "crl_sign": own}
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    never = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    built = built.add_extension(x509.KeyUsage(**usage, **never), critical=True)
    if not own:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        for_server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        built = built.add_extension(names, critical=False).add_extension(for_server, critical=False)
    return built.sign(authority, hashes.SHA384())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _refuse(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int) -> None:
    empty = found_at(folder) == "a folder" and not any(folder.iterdir())
    if not empty and found_at(folder) != "nothing":
        raise AccordError(
            f"{folder} exists and is not an empty folder. Choose another one: keys are never "
            "written over."
        )
    if not hosts or not all(re.fullmatch(r"[A-Za-z0-9.:-]+", host) for host in hosts):
        raise AccordError(
            "--host: expected the names or addresses by which clients reach the server, such as "
            f"fl.example.org or 192.0.2.1; found {', '.join(hosts) or 'none'}."
        )
    if not clients:
        raise AccordError("--client: name each client, for example --client north --client south.")
    for name in clients:
        if not re.fullmatch(SITE, name) or len(name) > 100 or name == SERVER:
            raise AccordError(
                f"--client: expected a name of letters, digits, dots and dashes, other than "
                f"{SERVER!r}; found {name!r}."
            )
    if len({name.lower() for name in clients}) < len(clients):
        raise AccordError("--client: every client must be named once; upper case does not count.")
    if not 1 <= days <= 3650:
        raise AccordError(f"--days: expected 1 to 3650; found {days}.")


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Writes a new file; nobody else can ever read a secret one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
