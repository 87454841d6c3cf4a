"""Make the pictures of the dashboard that the documentation shows, from the sample repository of the tests.

python scripts/dashboard_pictures.py           writes docs/images/dashboard-*.png; needs chromium (`make servers`)
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import servers  # noqa: E402
from dashboard.sample import make_fleet  # noqa: E402
from holdfast.dashboard.server import serve  # noqa: E402
from holdfast.ids import now_ms  # noqa: E402
from holdfast.store import open_store  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "overview": ("/", "light", 1180, 1010),
    "pipeline": ("/pipelines/orders", "light", 1180, 1010),
    "checkpoint": ("/pipelines/clicks/checkpoints/0-39", "dark", 1180, 870),
    "phone": ("/", "dark", 390, 844),
}


def main() -> None:
    store = open_store("memory://")
    repository = make_fleet(store, now_ms())
    store.url = "s3://lake/holdfast"
    addresses: list[str] = []
    up, stop = threading.Event(), threading.Event()

    def ready(url: str) -> None:
        addresses.append(url.rstrip("/"))
        up.set()

    thread = threading.Thread(target=serve, args=(repository,), kwargs={"ready": ready, "stop": stop})
    thread.start()
    up.wait()
    IMAGES.mkdir(exist_ok=True)
    try:
        with servers.chromium() as browser:
            for name, (path, scheme, width, height) in PICTURES.items():
                size = {"width": width, "height": height}
                page = browser.new_page(color_scheme=scheme, viewport=size)  # type: ignore[arg-type]
                page.goto(addresses[0] + path)
                page.screenshot(path=IMAGES / f"dashboard-{name}.png")
                page.close()
                print(IMAGES / f"dashboard-{name}.png")
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    main()
