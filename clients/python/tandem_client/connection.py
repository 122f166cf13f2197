"""How a client connects: addresses, TLS, tokens, and what every call carries."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, Union

import grpc
from google.protobuf import message

from . import proto

VERSION = importlib.metadata.version("tandem-client")
SERVICE = "tandem.v1.Generation"

Request = TypeVar("Request", bound=message.Message)
Response = TypeVar("Response", bound=message.Message)

Pem = Union[str, "os.PathLike[str]", bytes]
"""The path of a PEM file, or its contents as bytes."""
Secret = Union[str, Callable[[], str]]
"""A token, or what returns the present one: it is called for each call."""


def _contents(pem: Pem | None) -> bytes | None:
    if pem is None or isinstance(pem, bytes):
        return pem
    with open(pem, "rb") as file:
        return file.read()


def is_local(address: str) -> bool:
    """Returns true if what is sent to the address stays on this machine."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = re.sub(r":\d+$", "", re.sub(r"^(dns:/*|ipv4:|ipv6:)", "", address)).strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_SCHEME = re.compile(r"(unix|unix-abstract|vsock|dns|ipv4|ipv6|xds|google-c2p):")  # gRPC reads these addresses itself
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@]+):([0-9]{1,5})")


def check_address(address: str) -> None:
    """Raises ValueError for an address of which gRPC would say only that it cannot connect."""
    if isinstance(address, str):
        found = _HOST_AND_PORT.fullmatch(address)
        if _SCHEME.match(address) or (found and 1 <= int(found[1]) <= 65535):
            return
    raise ValueError(f"address: got {address!r}, allowed: HOST:PORT, or unix:PATH. The address is that of the server's line `ready:`, "
                     "and not that of its line `http:`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """The arguments of a client, checked."""

    address: str
    tls: bool
    ca: Pem | None
    certificate: Pem | None
    key: Pem | None
    server_name: str | None
    token: Secret | None
    tenant: str | None
    insecure: bool
    metadata: Mapping[str, str]

    def __post_init__(self) -> None:
        check_address(self.address)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client has a certificate and its key, or neither")
        if self.token is not None and not self.uses_tls and not self.insecure and not is_local(self.address):
            raise ValueError(f"a token for {self.address} could be read on the way: use TLS (tls=True or ca=…), or insecure=True")

    @property
    def uses_tls(self) -> bool:
        return self.tls or self.ca is not None or self.certificate is not None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Returns None for plaintext. Files are read now."""
        if not self.uses_tls:
            return None
        return grpc.ssl_channel_credentials(_contents(self.ca), _contents(self.key), _contents(self.certificate))

    def options(self) -> list[tuple[str, str | int]]:
        # The client itself retries, so gRPC does not. Clients of one process do not share a connection, so each ends with its client.
        options: list[tuple[str, str | int]] = [("grpc.primary_user_agent", f"tandem-client-python/{VERSION}"),
                                                ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
                                                ("grpc.max_receive_message_length", -1)]
        if self.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options

    def call_metadata(self, tenant: str | None, traceparent: str | None) -> tuple[tuple[str, str | bytes], ...]:
        metadata: dict[str, str | bytes] = dict(self.metadata)
        token = self.token() if callable(self.token) else self.token
        values = {"authorization": token and f"Bearer {token}", "tandem-tenant": self.tenant if tenant is None else tenant,
                  "traceparent": traceparent}
        metadata.update({key: value for key, value in values.items() if value is not None})
        return tuple(metadata.items())


@dataclasses.dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """A method of the service."""

    name: str
    request: type[Request]
    response: type[Response]

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"


GENERATE = Method("Generate", proto.GenerateRequest, proto.GenerateResponse)
TOKENIZE = Method("Tokenize", proto.TokenizeRequest, proto.TokenizeResponse)
DETOKENIZE = Method("Detokenize", proto.DetokenizeRequest, proto.DetokenizeResponse)
GET_SERVER_INFO = Method("GetServerInfo", proto.GetServerInfoRequest, proto.ServerInfo)
