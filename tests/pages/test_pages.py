"""Every page with Python in it is played on its stage, to the last block."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
    try:
        STAGES[page.name](play)
    except BaseException:
        for process in play.beside:
            process.kill()
            process.communicate()
        raise
    play.end()
    assert play.left() == []


UNTIL_A_BATCH = """
while not query.lastProgress:
    query.awaitTermination(1)
query.stop()
print(os.environ["JAVA_HOME"])
"""


def test_the_first_query_of_the_quickstart_runs_where_no_java_is_on_the_path(tmp_path: Path) -> None:
    [page] = [page for page in PAGES if page.name == "docs/quickstart.md"]
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "chmod", "dirname", "readlink", "rm", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        [sys.executable, "-c", f"import os\n{page.of('python')[0].code}{UNTIL_A_BATCH}"],
        env={**os.environ, "PATH": str(tools), "JAVA_HOME": "", "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "holdfast" in done.stdout
    assert (tmp_path / "checkpoints/orders/commits/0").exists()
