"""What all pages share: the repository to look at, the one to act on, who may, and how a page is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.dashboard.fleet import Fleet, Rules
from holdfast.dashboard.guard import Access
from holdfast.dashboard.jobs import Jobs
from holdfast.dashboard.kept import Kept, KeptReads
from holdfast.dashboard.render import command_line, environment
from holdfast.errors import BadValue
from holdfast.gc import PrunePlan
from holdfast.handles import Repository, StoredPipeline, read_through
from holdfast.report import Course

__all__ = ["LARGEST_BODY", "Site", "Trail", "of", "read_body", "read_form", "read_number", "renews_itself"]

LARGEST_BODY = 64 * 1024
COURSES_KEPT = 4096
PLANS_KEPT = 16
HISTORIES_KEPT = 16

Trail = list[tuple[str, str]]
"""The way to a page: words and addresses."""


@dataclass
class Site:
    """One dashboard. `looking` remembers what it read; `acting` never does, and is for changes alone."""

    looking: Repository
    acting: Repository
    access: Access
    fleet: Fleet
    jobs: Jobs
    courses: Kept[tuple[str, str], Course]
    plans: Kept[str, PrunePlan]
    """Plans of prunes that were shown: what is carried out is the very plan that somebody saw."""
    histories: Kept[tuple[str, str, str], tuple[float, dict[str, Any]]]
    """What pages of pipelines showed, and after which look: a page that renews itself asks again only if it moved."""

    @classmethod
    def of(cls, repository: Repository, access: Access, rules: Rules | None = None) -> Site:
        looking = read_through(repository, KeptReads(repository.store))
        return cls(
            looking,
            repository,
            access,
            Fleet(looking, rules),
            Jobs(),
            Kept(COURSES_KEPT),
            Kept(PLANS_KEPT),
            Kept(HISTORIES_KEPT),
        )

    def close(self) -> None:
        self.fleet.close()

    def pipeline(self, request: Request) -> StoredPipeline:
        """The pipeline that the address names, to look at. Raises PipelineMissing or BadName."""
        return self.looking.pipeline(request.path_params["name"])

    def command(self, *words: str) -> str:
        return command_line(words, self.looking.url)

    def page(
        self, request: Request, template: str, trail: Trail, values: Mapping[str, Any], status: int = 200
    ) -> HTMLResponse:
        """Write a page. The last step of the trail is its title."""
        text = (
            environment()
            .get_template(template)
            .render(
                url=self.looking.url,
                path=request.url.path,
                trail=trail,
                title=trail[-1][0] if trail else "",
                known=self.access.knows(request),
                can_sign_in=self.access.can_sign_in,
                command=self.command,
                **values,
            )
        )
        return HTMLResponse(text, status_code=status)


def of(request: Request) -> Site:
    """The site that a request came to."""
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


def renews_itself(request: Request) -> bool:
    """Whether a page asks for its own parts anew, and nobody pressed anything."""
    return "x-holdfast-renew" in request.headers


def read_number(request: Request, name: str, default: int = 0) -> int:
    """A whole number from the query; what is none is a mistake of whoever wrote the address."""
    given = request.query_params.get(name)
    if given is None or given == "":
        return default
    if not given.isdecimal() or len(given) > 12:
        raise BadValue(name, f"{given!r} is no whole number")
    return int(given)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. A body that is too large, or no form, is refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BadValue("form", "it is not application/x-www-form-urlencoded")
    return dict(parse_qsl((await read_body(request)).decode("utf-8", "replace"), keep_blank_values=True))


async def read_body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise BadValue("request", f"it is larger than {LARGEST_BODY} bytes")
    return body
