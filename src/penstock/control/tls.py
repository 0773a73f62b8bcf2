# SPDX-License-Identifier: Apache-2.0
"""Who is who on the network: certificates of one authority, checked on both sides, TLS 1.3.

Invariants:
1. A node is what its certificate says: a name among its DNS names, or one that a wildcard of one level covers.
2. Certificates may be renewed in place: `Certificates.refresh` loads them anew for connections that begin later, and
   keeps the old ones when the new ones cannot be loaded, as while a key does not belong to its certificate yet.
3. A connection whose other side is silently gone ends within GONE_MS of the first bytes that nobody received.
"""

import contextlib
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import PenstockError, UsageError

GONE_MS = 3000


def watch(transport: Any) -> None:
    """Notice that the other side's host is gone: the kernel would go on for a quarter of an hour."""
    sock = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_MS)


class Files(NamedTuple):
    """Where a side's certificate, its key and the authority's certificate lie."""

    certificate: str
    key: str
    ca: str

    def check(self) -> "Files":
        for what, path in zip(("certificate", "key", "ca"), self, strict=True):
            if not path:
                raise UsageError(
                    f"tls.{what} is not set; name the file (docs/guide/site.md tells how to make it)"
                )
            if not Path(path).is_file():
                raise UsageError(f"there is no file {path} (tls.{what})")
        return self

    def times(self) -> tuple[int, ...]:
        return tuple(Path(path).stat().st_mtime_ns for path in self)

    def load_into(self, context: ssl.SSLContext) -> None:
        context.load_verify_locations(self.ca)
        context.load_cert_chain(self.certificate, self.key)

    def pair(self) -> tuple[bytes, bytes]:
        """Key and certificate, which belong together."""
        self.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return Path(self.key).read_bytes(), Path(self.certificate).read_bytes()


class Certificates:
    """A context that outlives the files it was made of."""

    def __init__(self, files: Files, server: bool) -> None:
        self.files = files.check()
        purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        self.context = ssl.SSLContext(purpose)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.verify_mode = ssl.CERT_REQUIRED
        if server:
            self.context.num_tickets = 0  # nobody resumes, and each costs
        self._times: tuple[int, ...] = ()
        why = self._load()
        if why:
            raise PenstockError(why)

    def _load(self) -> str:
        try:
            times = self.files.times()
            if times == self._times:
                return ""
            self.files.load_into(
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            )  # what fails half way must not be ours
            self.files.load_into(self.context)
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            return f"the certificate {self.files.certificate} with key and {self.files.ca} cannot be used ({why})"
        self._times = times
        return ""

    def refresh(self) -> str:
        """Load what was renewed; a sentence when that failed."""
        return self._load()


def names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The DNS names of a peer's certificate, as ssl gives it."""
    rows = (certificate or {}).get("subjectAltName", ())
    return tuple(value for kind, value in rows if kind == "DNS")


def may_be(node: str, found: tuple[str, ...]) -> bool:
    """May somebody with a certificate for these names speak for this node?"""
    tail = node.partition(".")[2]
    return bool(node) and (node in found or (bool(tail) and f"*.{tail}" in found))


def sentence(error: BaseException, node: str) -> str:
    """Why a connection did not come about, for the one who runs this node."""
    reason = (getattr(error, "reason", None) or "").upper()
    text = str(getattr(error, "verify_message", "") or error)
    if "EXPIRED" in reason or "expired" in text:
        return f"a certificate has expired: {text}; renew this node's or the controller's"
    if "UNKNOWN_CA" in reason or "CERTIFICATE_VERIFY_FAILED" in reason or "unknown ca" in text.lower():
        return f"the certificates of {node} and the controller are not of one authority ({text}); see tls.ca"
    if "REQUIRED" in reason:
        return f"the controller wants a certificate of {node}; see tls.certificate"
    return f"the controller cannot be reached ({text or type(error).__name__})"


def read_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """HOST:PORT; a host of IPv6 stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon and default_port is not None:
        host, port = text, str(default_port)
    if not host or not port.isdigit() or not int(port) < 65536:
        raise UsageError(f"{text!r} is no address; write it as HOST:PORT")
    return host.strip("[]"), int(port)
