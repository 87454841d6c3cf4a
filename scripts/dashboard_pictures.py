"""Make pictures of the dashboard from the sample repository of the tests; needs chromium (`make servers`).

python scripts/dashboard_pictures.py              the ones that the documentation shows, docs/images/dashboard-*.png
python scripts/dashboard_pictures.py --all DIR    every page in light, dark and on a phone, to be looked at
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import Browser, Page  # noqa: E402

import servers  # noqa: E402
from dashboard.conftest import dashboard  # noqa: E402
from dashboard.views import WAYS, Views, every_view  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "overview": ("overview, read only", "light", 1180, "#rows .panel"),
    "pipeline": ("pipeline, read only", "light", 1180, "#sources"),
    "tree": ("pipeline, read only", "light", 1180, "#tree figure"),
    "checkpoint": ("checkpoint, skewed", "dark", 1180, "[aria-labelledby=h-heat]"),
    "phone": ("overview, read only", "dark", 390, ".has-more + .more"),
    "phone-pipeline": ("pipeline, damaged", "light", 390, "#history"),
}
"""By name: what is to be seen, in which light, how wide, and the last part that is on it."""

WHOLE = {"tree"}
"""Of these the part alone is shown; of the others all from the top of the page down to its end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIR", help="where to put a picture of every page")
    folder: Path | None = parser.parse_args().all
    with (
        tempfile.TemporaryDirectory() as place,
        every_view(dashboard, Path(place), "s3://lake/holdfast") as views,
        servers.chromium() as browser,
    ):
        if folder is None:
            make_pictures(views, browser)
        else:
            make_all(views, browser, folder)


def make_pictures(views: Views, browser: Browser) -> None:
    for name, (view, scheme, width, last) in PICTURES.items():
        page = opened(views, browser, color_scheme=scheme, viewport={"width": width, "height": 900})
        page.goto(views.addresses[view])
        place = page.locator(last).first.bounding_box()
        assert place is not None
        bottom, margin = place["y"] + place["height"], 16
        clip = {"x": 0, "y": 0, "width": width, "height": bottom + margin}
        if name in WHOLE:
            clip |= {"y": place["y"] - margin, "height": place["height"] + 2 * margin}
        page.screenshot(path=IMAGES / f"dashboard-{name}.png", full_page=True, clip=clip)  # type: ignore[arg-type]
        page.close()


def make_all(views: Views, browser: Browser, folder: Path) -> None:
    for way, options in WAYS.items():
        (folder / way).mkdir(parents=True, exist_ok=True)
        page = opened(views, browser, **options)
        for name, address in views.addresses.items():
            page.goto(address)
            page.screenshot(path=folder / way / f"{name}.png", full_page=True)
        page.close()


def opened(views: Views, browser: Browser, **options: object) -> Page:
    """A page of somebody who has signed in."""
    page = browser.new_page(**options)  # type: ignore[arg-type]
    name, _, value = views.fleet.cookie.partition("=")
    page.context.add_cookies([{"name": name, "value": value, "url": views.fleet.url}])
    return page


if __name__ == "__main__":
    main()
