"""Who is asking: the signed DataRobot authorization context, and behind it NAT's own credentials.

The header `X-DataRobot-Authorization-Context` holds a JWT signed with a shared key (HS256). NAT resolves users in
`UserManager.extract_user_from_connection`, which is patched once, so that all of its routes see the same user.
A header that is present but not valid gives no identity at all: falling back to another credential would let a
request with a broken header act as somebody else.

A context without `exp` is valid for ever, and one for any audience is accepted, unless `configure` says otherwise.
"""

import hashlib
import hmac
import os
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection

from dragent_stream.errors import DragentStreamError
from dragent_stream.nat.imports import SessionManager, UserInfo, UserManager, jwt
from dragent_stream.well_formed import well_formed

__all__ = [
    "AUTHORIZATION_CONTEXT",
    "DEFAULT_KEY_VARIABLE",
    "IdentityError",
    "check_signed",
    "configure",
    "patch",
    "request_user",
    "signed_user",
]

AUTHORIZATION_CONTEXT = "x-datarobot-authorization-context"
DEFAULT_KEY_VARIABLE = "SESSION_SECRET_KEY"
ALGORITHM = "HS256"


class _Policy(NamedTuple):
    key_variable: str = DEFAULT_KEY_VARIABLE
    audience: str | None = None
    require_expiry: bool = False


_policy = _Policy()


class IdentityError(DragentStreamError):
    """The request names no user, or names one that cannot be verified; answered with HTTP 401."""


def configure(key_variable: str, *, audience: str | None = None, require_expiry: bool = False) -> None:
    """Say how the authorization context is verified.

    Args:
        key_variable: The environment variable that holds its key.
        audience: The `aud` that it must name; any, or none, where None.
        require_expiry: Refuse a context without `exp`.
    """
    global _policy
    _policy = _Policy(key_variable, audience, require_expiry)


def context_user(token: str) -> UserInfo:
    """The user of a signed authorization context: `user.id` of its payload, else `sub`.

    The NAT user id is derived from the key as well, so that no other credential (a cookie, an API key) can give it.

    Raises:
        IdentityError: The token is unsigned, expired, signed with another key, or names nobody; or there is no key.
    """
    key_variable, audience, require_expiry = _policy
    key = os.environ.get(key_variable, "")
    if not key:
        raise IdentityError(f"{AUTHORIZATION_CONTEXT} cannot be verified: set its key in {key_variable}")
    required = ["exp"] if require_expiry else []
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=audience,
            options={"verify_aud": audience is not None, "require": required},
        )
    except jwt.PyJWTError as error:
        # The exception's text may quote the token; its class says enough.
        raise IdentityError(f"{AUTHORIZATION_CONTEXT} is not valid: {type(error).__name__}") from None
    user: Any = claims.get("user")
    user_id: Any = user.get("id") if isinstance(user, dict) else None
    user_id = user_id or claims.get("sub")
    if not isinstance(user_id, str) or not user_id.strip():
        raise IdentityError(f"{AUTHORIZATION_CONTEXT} names no user: neither user.id nor sub")
    if user_id != well_formed(user_id):
        raise IdentityError(f"{AUTHORIZATION_CONTEXT} names a user by text that is not Unicode")
    derived = hmac.new(key.encode(), f"{AUTHORIZATION_CONTEXT}\0{user_id}".encode(), hashlib.sha256).hexdigest()
    return UserInfo.model_validate({"api_key": derived})


def patch() -> None:
    """Teach `UserManager.extract_user_from_connection` the authorization context; a second call changes nothing.

    Arguments are passed on as they come: 1.9 added two to the one of 1.6. A configured `identity_header` (1.9) is the
    operator's choice and goes first.
    """
    original: Any = UserManager.__dict__["extract_user_from_connection"]
    if getattr(original.__func__, "reads_authorization_context", False):
        return

    def extract(cls: type[UserManager], connection: HTTPConnection, *args: Any, **kwargs: Any) -> UserInfo | None:
        token = connection.headers.get(AUTHORIZATION_CONTEXT)
        if token is None or kwargs.get("identity_header") is not None:
            return original.__func__(cls, connection, *args, **kwargs)
        try:
            return context_user(token)
        except IdentityError:
            return None

    extract.reads_authorization_context = True  # pyright: ignore[reportFunctionMemberAccess]
    UserManager.extract_user_from_connection = classmethod(extract)  # pyright: ignore[reportAttributeAccessIssue]


def request_user(connection: HTTPConnection, session_manager: SessionManager) -> str | None:
    """The NAT user id of a request, or None where nobody is named and nobody needs to be.

    Raises:
        IdentityError: A credential is present but not valid, or a per-user workflow is asked for by nobody.
    """
    signed = signed_user(connection, session_manager)
    if signed is not None:
        return signed
    identity_header = _identity_header(session_manager)
    extra: dict[str, Any] = {} if identity_header is None else {"identity_header": identity_header}
    extract: Any = UserManager.extract_user_from_connection
    try:
        user: UserInfo | None = extract(connection, **extra)
    except ValueError as error:
        raise IdentityError(f"the request's credential is not valid: {type(error).__name__}") from error
    if user is None and session_manager.is_workflow_per_user:
        raise IdentityError(
            "this workflow is per user, and the request names none: send a signed X-DataRobot-Authorization-Context, "
            "an Authorization header or X-API-Key"
        )
    return None if user is None else user.get_user_id()


def signed_user(connection: HTTPConnection, session_manager: SessionManager) -> str | None:
    """The NAT user id of a signed context; None without one, and where a configured `identity_header` goes first.

    Raises:
        IdentityError: The context is not valid.
    """
    token = connection.headers.get(AUTHORIZATION_CONTEXT)
    if token is None or _identity_header(session_manager) is not None:
        return None
    return context_user(token).get_user_id()


def check_signed(connection: HTTPConnection, session_manager: SessionManager, *, required: bool) -> None:
    """See that a connection's signed context is valid, and that there is one where it is required.

    Raises:
        IdentityError: It is not.
    """
    token = connection.headers.get(AUTHORIZATION_CONTEXT)
    if required:
        if token is None:
            raise IdentityError(f"a signed {AUTHORIZATION_CONTEXT} is required, and there is none")
        context_user(token)
    else:
        signed_user(connection, session_manager)


def _identity_header(session_manager: SessionManager) -> str | None:
    return getattr(session_manager, "_identity_header", None)
