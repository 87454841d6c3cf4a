"""What the words of obstore and of the cloud stores mean: gone, denied, passing, or for good."""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from holdfast.errors import AccessDenied, HoldfastError, ObjectMissing, PlaceMissing, StoreFailure
from holdfast.store.retry import Transient

__all__ = ["range_is_past_the_end", "translate"]

STATUS = re.compile(r"status code: (\d{3})")
CODE = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
CAUSE = re.compile(r'(?:message|error): "([^"]+)"')

PLACE_MISSING = re.compile(r"NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist")
DENIED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired|"
    r"AuthorizationHeaderMalformed|AuthenticationFailed|AuthorizationFailure|InvalidAuthenticationInfo"
)
# Where obstore looks for credentials when it was given none.
CREDENTIAL_SOURCE = re.compile(
    r"169\.254\.169\.254|169\.254\.170\.2|/latest/api/token|/latest/meta-data|"
    r"computeMetadata|token request|oauth2/v2\.0/token"
)
PASSING_STATUS = {408, 409, 425, 429, 500, 502, 503, 504, 507, 509, 529}
PASSING_CODE = re.compile(r"RequestTimeout|SlowDown|InternalError|ServerBusy|OperationTimedOut|OperationAborted")
NETWORK = re.compile(r"HTTP error|HttpError")
NEVER_SENT = re.compile(r"HttpError \{\s*kind: Connect,")
# A request that could not even be put together, or went to a place that speaks something else.
HOPELESS = re.compile(r"builder error|Received redirect|UnknownIssuer|invalid peer certificate|CertificateError")


def translate(error: Exception, url: str, action: str, key: str, worked_before: bool) -> HoldfastError | Transient:
    """Our name for an error of obstore; `key` is what was asked for, "" where no single object was.

    A failure without a status and not of the network is the library's own, and stays; but in a create it comes after
    the request was sent, so that the outcome has to be looked up, as after any lost reply.
    """
    text = str(error)
    why = _last_words(text)
    found = STATUS.search(text)
    status = int(found[1]) if found else None
    if PLACE_MISSING.search(text):
        return PlaceMissing(url, why)
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(url, key)
    if CREDENTIAL_SOURCE.search(text):
        if worked_before:
            return Transient(why, may_have_landed=False)
        return AccessDenied(url, action, f"no credentials were given, and none were found: {why}")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403) or DENIED.search(text):
        return AccessDenied(url, action, why)
    if status in PASSING_STATUS or PASSING_CODE.search(text):
        return Transient(why)
    if status == 404:
        return PlaceMissing(url, why)
    if status is not None or isinstance(error, ValueError) or HOPELESS.search(text):
        return StoreFailure(url, action, why)
    if NETWORK.search(text) or action.startswith("create "):
        return Transient(why, may_have_landed=not NEVER_SENT.search(text))
    return StoreFailure(url, action, why)


def range_is_past_the_end(error: Exception) -> bool:
    """Whether a range began where the object had ended: the server says 416, or the library sees it in the reply."""
    text = str(error)
    found = STATUS.search(text)
    return "Wanted range starting at" in text or (found is not None and found[1] == "416")


def _last_words(text: str) -> str:
    """The store's own message where it sent one, else the library's, on one line."""
    summary, _, details = text.partition("\n\nDebug source:")
    if coded := CODE.search(summary):
        status = STATUS.search(summary)
        return " ".join(part for part in (status and status[1], coded[1], coded[2]) if part).replace("\n", " ")
    summary = " ".join(summary.split())
    # The summary of a network failure only says that it failed; the innermost cause says why.
    causes = CAUSE.findall(details) if "HTTP error" in summary else []
    return f"{summary[:400]}: {causes[-1]}" if causes else summary[:400]
