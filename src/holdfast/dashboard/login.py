"""Signing in and out: the token is shown once, and a cookie stands for it that no other site and no script can use."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.dashboard.guard import COOKIE
from holdfast.dashboard.site import of, read_form

__all__ = ["login_form", "sign_in", "sign_out"]


def login_form(request: Request) -> Response:
    return of(request).page(request, "login.html", [("Sign in", "/login")], {"wrong": False})


async def sign_in(request: Request) -> Response:
    site = of(request)
    session = site.access.sign_in((await read_form(request)).get("token", "").strip())
    if session is None:
        return site.page(request, "login.html", [("Sign in", "/login")], {"wrong": True}, status=403)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/")
    return answer


def sign_out(request: Request) -> Response:
    of(request).access.sign_out(request)
    answer = RedirectResponse("/", status_code=303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
