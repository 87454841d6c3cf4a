"""Every page with Python in it is played on its stage, to the last block."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages.blocks import PAGES, Page
from pages.playing import Play
from pages.stages import STAGES

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.pipeline.upkeep.WayBackLimited")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in STAGES], ids=lambda page: page.name)
def test_a_page_does_what_it_says(page: Page, here: Path, request: pytest.FixtureRequest) -> None:
    play = Play(page, here, request.getfixturevalue)
    play.stands_for["/home/you"] = str(here)
    STAGES[page.name](play)
    assert play.left() == []
