"""Why a warehouse in S3 can't be used, in terms of the catalog options.

`check_access` finds errors in the options alone. `diagnosis` derives the required change from a
failed request: the region, the key, the bucket, or the endpoint's scheme or address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.redaction import masked
from paimon_magics.tables.stores.s3_access import S3Access
from paimon_magics.tables.stores.store import is_directory_bucket

_LOOK_SECONDS = 3.0
_AWS = re.compile(r"(^|\.)amazonaws\.com(\.cn)?$")
_PATH_STYLE = "s3.path-style-access"
_SEE = "docs/stores.md has examples."
_OF_REGIONS = ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint")
_EXPECTED_REGION = re.compile(r"expecting '([\w-]+)'|<Region>([\w-]+)</Region>")

_CODES: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("InvalidAccessKeyId", "InvalidClientTokenId"): (
        "{where} does not know the {key}",
        "Correct 's3.access-key' (and 's3.secret-key' with it), or 's3.endpoint'.",
    ),
    ("SignatureDoesNotMatch",): (
        "the secret key does not belong to the {key} at {where}",
        "Correct 's3.secret-key'. If it comes from a file, check it for spaces and line breaks. A "
        "proxy in front of the store must pass on the host name.",
    ),
    ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"): (
        "{where} says that the session token is no longer valid ({code})",
        "Get new temporary credentials: 's3.access-key', 's3.secret-key' and 's3.session-token' "
        "belong together.",
    ),
    ("NoSuchBucket",): (
        "there is no bucket `{bucket}` at {where}",
        "Correct the bucket's name or 's3.endpoint', or create the bucket with the store's own "
        "tools.",
    ),
    ("InvalidBucketName",): (
        "`{bucket}` can't be the name of a bucket at {where}",
        "Correct it: names have 3 to 63 lower-case letters, digits, dots and hyphens.",
    ),
    ("RequestTimeTooSkewed",): (
        "the clock of this machine differs from the store's",
        "Set the clock.",
    ),
}
"""By the codes of an answer: the reason of the refusal, and the advice."""


def check_access(warehouse: str, access: S3Access) -> None:
    """Raise SetupError for options with which no request can succeed."""
    bucket = urlsplit(warehouse).netloc
    if not bucket:
        raise SetupError(
            f"The warehouse {warehouse} names no bucket.",
            hint="Write s3://BUCKET/FOLDER.",
        )
    if access.endpoint is not None:
        _check_endpoint(access, bucket)
    if bool(access.access_key) != bool(access.secret_key):
        present, missing = ("access", "secret") if access.access_key else ("secret", "access")
        raise SetupError(
            f"The catalog options have 's3.{present}-key' and no 's3.{missing}-key'.",
            hint="Give both, or none: then the environment (AWS_ACCESS_KEY_ID, …) or the "
            "machine's role has them.",
        )
    if access.region is None:
        advice = (
            "that of the bucket, as eu-central-1"
            if access.endpoint is None or _AWS.search(_host(access.endpoint))
            else "us-east-1 for MinIO, unless its configuration says otherwise"
        )
        raise SetupError(
            f"The region of {warehouse} is missing.",
            hint=f"Give the catalog option 's3.region', or set AWS_REGION: {advice}. {_SEE}",
        )


def _check_endpoint(access: S3Access, bucket: str) -> None:
    endpoint = access.endpoint or ""
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
        ":" in host or host.encode("idna")
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise SetupError(
            f"The endpoint '{endpoint}' is not the address of a store.",
            hint="Write 's3.endpoint' as https://HOST:PORT, or http:// where it has no TLS.",
        )
    if re.fullmatch(r"[\d.]+", host) and not _is_ip(host):
        raise SetupError(
            f"The endpoint '{endpoint}' names the host '{host}', which is not an IP address.",
            hint="Write its four numbers, as in http://127.0.0.1:9000, or the host name.",
        )
    if not access.path_style and _is_ip(host):
        raise SetupError(
            f"The endpoint '{endpoint}' is an IP address, so the bucket `{bucket}` can't be part "
            "of the host name.",
            hint=f"Give the catalog option '{_PATH_STYLE}' = 'true', as MinIO needs it. {_SEE}",
        )


def diagnosis(warehouse: str, access: S3Access, error: PaimonMagicsError) -> SetupError:
    """The error for a request that raised `error`: the reason, and the required change."""
    text = f"{error.message} {error.__cause__ or ''}"
    match = re.search(r"<Code>(\w+)</Code>", text)
    code = match[1] if match else ""
    reason = _by_code(code, urlsplit(warehouse).netloc, access) or _by_text(
        code, text, urlsplit(warehouse).netloc, access
    )
    if reason is not None:
        return _failure(warehouse, *reason)
    return _by_connecting(warehouse, access, error, answered="status code" in text, code=code)


def _by_code(code: str, bucket: str, access: S3Access) -> tuple[str, str] | None:
    """The reason of a refusal and the advice, where the code of the answer is enough to know."""
    for codes, (reason, advice) in _CODES.items():
        if code in codes:
            words = {"where": access.endpoint or "AWS", "bucket": bucket, "code": code}
            return reason.format(**words, key=_known_key(access)), advice
    return None


def _by_text(code: str, text: str, bucket: str, access: S3Access) -> tuple[str, str] | None:
    """The reason of a refusal and the advice, where the text of the answer is needed to know."""
    if code in _OF_REGIONS or "incorrectly configured region" in text:
        expected = _EXPECTED_REGION.search(text)
        named = "" if expected is None else f", but in {expected[1] or expected[2]}"
        return (
            f"the bucket `{bucket}` is not in the region {access.region}{named}",
            "Correct 's3.region', or 's3.endpoint'.",
        )
    if code in ("AccessDenied", "AllAccessDisabled", "AccountProblem") or (
        code and "403 Forbidden" in text
    ):
        rights = "permission to list, read and write there"
        if is_directory_bucket(f"s3://{bucket}"):
            rights = "permission s3express:CreateSession, for reading and writing, on the bucket"
        return (
            f"the {_known_key(access)} has no permission to list it ({code})",
            f"Ask for the {rights}, or use other credentials.",
        )
    if "169.254.169.254" in text or "169.254.170.2" in text:
        return (
            "no credentials were found: neither among the catalog options, nor in the "
            "environment, nor a role of this machine",
            f"Give 's3.access-key' and 's3.secret-key', or set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY. {_SEE}",
        )
    return None


def _known_key(access: S3Access) -> str:
    if not access.access_key:
        return "access key of the environment or role"
    return f"access key {masked('access-key', access.access_key)}"


def no_store(warehouse: str, access: S3Access) -> SetupError:
    """The error for an endpoint that answers, but not as an S3 server."""
    return _failure(
        warehouse,
        f"{access.endpoint} answers, but not as an S3 server",
        "Correct 's3.endpoint': write the address of the store's S3 interface, not that of its web "
        "console (with MinIO port 9000, not 9001).",
    )


def is_refusal_to_write(error: PaimonMagicsError) -> bool:
    """Whether `error` is a store's refusal to create an object: credentials may only read."""
    text = f"{error.message} {error.__cause__ or ''}"
    return "AccessDenied" in text or "MethodNotAllowed" in text or "403 Forbidden" in text


def _by_connecting(
    warehouse: str, access: S3Access, error: PaimonMagicsError, *, answered: bool, code: str
) -> SetupError:
    if access.endpoint is None:
        checked = "'s3.endpoint'"
        if is_directory_bucket(warehouse):
            checked = "'s3.region': the bucket's own host is found by it and the zone in its name"
        return _failure(warehouse, error.message, f"Check the network, and {checked}.")
    parts = urlsplit(access.endpoint)
    reason = None if code else _reason(parts)
    if reason is not None:
        return _failure(warehouse, *reason)
    if answered and not code:
        return no_store(warehouse, access)
    if not access.path_style and not _AWS.search(_host(access.endpoint)):
        hint = f"Most servers other than AWS need '{_PATH_STYLE}' = 'true'. {_SEE}"
    else:
        hint = "Check 's3.endpoint', and that the store is running."
    return _failure(warehouse, error.message, hint)


def _reason(parts: SplitResult) -> tuple[str, str] | None:
    """Why the endpoint's host can't be reached by its scheme, and the advice; None if it can."""
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), _LOOK_SECONDS):
            pass
    except socket.gaierror:
        return f"there is no host '{host}'", "Correct the host in 's3.endpoint'."
    except OSError as error:
        reason = error.strerror or str(error)
        return (
            f"{where} can't be reached: {reason}",
            "Check 's3.endpoint', and that the store is running.",
        )
    trusted = _tls_problem(host, port, ssl.create_default_context())
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    if is_tls and trusted and not _tls_problem(host, port, loose):
        return (
            f"the certificate of {where} is not trusted: {trusted}",
            "Make this machine trust the authority that signed it (SSL_CERT_FILE names its file).",
        )
    if is_tls and trusted:
        return (
            f"{where} does not speak https",
            f"Write 's3.endpoint' as http://{parts.netloc}, if the store has no TLS.",
        )
    if not is_tls and not _tls_problem(host, port, loose):
        return f"{where} speaks https", f"Write 's3.endpoint' as https://{parts.netloc}."
    return None


def _tls_problem(host: str, port: int, context: ssl.SSLContext) -> str:
    try:
        with (
            socket.create_connection((host, port), _LOOK_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message or "verification failed"
    except OSError as error:
        return str(error) or type(error).__name__


def _failure(warehouse: str, why: str, hint: str) -> SetupError:
    return SetupError(f"The warehouse {warehouse} can't be used: {why}.", hint=hint)


def _host(endpoint: str) -> str:
    return urlsplit(endpoint).hostname or ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
