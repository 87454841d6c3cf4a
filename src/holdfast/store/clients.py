"""How options become obstore's clients, one for each cloud. Imported only when a cloud store is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from holdfast.errors import BadURL
from holdfast.store.address import Cloud, CloudAddress
from holdfast.store.cloud import CloudStore
from holdfast.store.cloud_directory import CloudDirectory
from holdfast.store.retry import RetryPolicy

__all__ = ["connect_directory", "connect_store"]

# A request that brings no byte for so long is given up and tried again. The whole of one may take longer: a pack goes
# up in a single request, over whatever line there is.
TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "180s"}
CLIENT_OPTIONS = {
    *TIMEOUTS,
    "allow_http",
    "allow_invalid_certificates",
    "http1_only",
    "http2_only",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "root_certificate",
}
SECRETS = (
    "secret_access_key",
    "session_token",
    "account_key",
    "sas_token",
    "client_secret",
    "token",
    "service_account_key",
)

ENDPOINTS = ("endpoint", "endpoint_url", "base_url")

# Azure's batch takes 256, S3's 1000.
DELETE_BATCH: dict[Cloud, int] = {"s3": 1000, "gs": 250, "az": 250}
NO_RETRY = {"max_retries": 0}


def connect_store(address: CloudAddress, *, retry_seconds: float) -> CloudStore:
    """A store in a bucket or container. Sends no request yet; BadURL for an option that the cloud does not know."""
    streaming = {"max_retries": 20, "retry_timeout": timedelta(seconds=retry_seconds)}
    return CloudStore(address.url, _client(address, NO_RETRY), _client(address, streaming), DELETE_BATCH[address.cloud])


def connect_directory(address: CloudAddress, retry: RetryPolicy) -> CloudDirectory:
    """A directory in a bucket or container. Sends no request yet; BadURL for an option that the cloud does not know."""
    return CloudDirectory(address.url, _client(address, NO_RETRY), retry)


def _client(address: CloudAddress, retry: Mapping[str, Any]) -> ObjectStore:
    """A client with the options of the address, and the environment's where they say nothing."""
    cloud, options, url = address.cloud, address.options, address.url
    for name, value in options.items():
        # obstore would panic at either. A key that was read from a file often ends in a line break.
        if not value.isprintable():
            raise BadURL(url, f"the option {name} holds a line break or another control character")
        if name in ENDPOINTS and not value.startswith(("http://", "https://")):
            raise BadURL(url, f"the option {name} must begin with http:// or https://")
    config: dict[str, Any] = {_ALIASES.get((cloud, name), name): value for name, value in options.items()}
    # Plain http is used only where the endpoint says so, and then it is meant.
    client_options = (
        TIMEOUTS | {"allow_http": "true"} | {name: config.pop(name) for name in CLIENT_OPTIONS & set(config)}
    )
    credentials = _CREDENTIALS[cloud](config)
    make: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[cloud]
    try:
        return make(  # type: ignore[no-any-return]
            address.bucket,
            prefix=address.prefix or None,
            config=config,
            client_options=client_options,
            retry_config=retry,
            credential_provider=credentials,
        )
    except (BaseError, ValueError, TypeError) as error:
        why = " ".join(str(error).partition("\n\nDebug source:")[0].split())
        for secret in (options[name] for name in SECRETS if options.get(name)):
            why = why.replace(secret, "***")
        raise BadURL(url, why) from None


_ALIASES: dict[tuple[Cloud, str], str] = {
    ("s3", "endpoint_url"): "endpoint",
    ("gs", "endpoint"): "base_url",
    ("gs", "endpoint_url"): "base_url",
    ("gs", "token"): "bearer_token",
    ("az", "endpoint_url"): "endpoint",
    ("az", "sas_key"): "sas_token",
}

Credentials: TypeAlias = Callable[[], Mapping[str, Any]] | None

# Credentials that were given outright go in as a provider: as plain options they would be mixed with what else is in
# the environment, such as the session token of another login.


def _s3_credentials(config: dict[str, Any]) -> Credentials:
    if not {"access_key_id", "secret_access_key"} <= set(config):
        return None
    given = {
        "access_key_id": config.pop("access_key_id"),
        "secret_access_key": config.pop("secret_access_key"),
        "token": config.pop("session_token", None),
        "expires_at": None,
    }
    return lambda: given


def _azure_credentials(config: dict[str, Any]) -> Credentials:
    for option, field in (("account_key", "access_key"), ("sas_token", "sas_token"), ("token", "token")):
        if option in config:
            given = {field: config.pop(option), "expires_at": None}
            return lambda: given
    return None


def _google_credentials(config: dict[str, Any]) -> Credentials:
    if "bearer_token" not in config:
        return None
    given = {"token": config.pop("bearer_token"), "expires_at": None}
    return lambda: given


_CREDENTIALS: dict[Cloud, Callable[[dict[str, Any]], Credentials]] = {
    "s3": _s3_credentials,
    "gs": _google_credentials,
    "az": _azure_credentials,
}
