"""`holdfast dashboard`: the repository in a browser."""

from __future__ import annotations

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.told import told_to_stop

__all__ = ["command"]


@verb(
    "dashboard",
    click.Option(["--host"], default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen."),
    click.Option(
        ["--port"],
        type=click.IntRange(0, 65535),
        default=8420,
        show_default=True,
        help="The port; 0 takes one that is free.",
    ),
    click.Option(
        ["--token"],
        envvar="HOLDFAST_DASHBOARD_TOKEN",
        show_envvar=True,
        metavar="TOKEN",
        help="Lets those who know it take savepoints, check and prune. Best given by the environment.",
    ),
    click.Option(
        ["--allow-host"],
        multiple=True,
        metavar="NAME",
        help="A name that the dashboard is reached by, through a proxy for example. Repeatable.",
    ),
    click.Option(
        ["--max-age"],
        metavar="DURATION",
        help="A pipeline is late when its last checkpoint is older: 90s, 10m.  [default: 3 times its usual interval]",
    ),
    examples="""
    holdfast dashboard
    holdfast dashboard --port 0 --max-age 10m
    holdfast dashboard --host 0.0.0.0 --allow-host holdfast.example.com
    """,
)
def command(
    session: Session, host: str, port: int, token: str | None, allow_host: tuple[str, ...], max_age: str | None
) -> None:
    """Show the repository in a browser: pipelines, checkpoints, sources, sinks, history; live, until it is stopped.

    It needs `pip install 'holdfast[dashboard]'`, and neither Spark nor Java. Without a token it is read only. It
    listens on this machine alone; on any other address it needs a token, and then even looking does. It does not
    encrypt: put a proxy that does in front of it. Programs find an API (/openapi.json), /metrics for Prometheus and
    /healthz. SIGTERM and SIGINT end it.
    """
    from holdfast.decide.schedule import parse_duration
    from holdfast.errors import LibraryMissing

    max_age_ms = parse_duration(max_age) if max_age else None
    token = token or None  # An empty one, of a variable that is not set for example, is none.
    try:
        from holdfast.dashboard.fleet import Rules
        from holdfast.dashboard.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise LibraryMissing("'holdfast[dashboard]'", "the dashboard", str(error)) from error
    repository = session.repository()

    def ready(url: str) -> None:
        if session.as_json:
            session.document({"url": url, "repository": repository.url, "read_only": token is None})
        else:
            session.output.line(
                f"{url}  ({'read only' if token is None else 'with actions for whoever has the token'})"
            )
            session.output.remark("Stop it with Ctrl-C.")

    with told_to_stop() as stop:
        serve(
            repository,
            host=host,
            port=port,
            token=token,
            names=allow_host,
            rules=Rules(max_age_ms),
            ready=ready,
            stop=stop,
        )
