"""The report in a real browser: quiet, usable, accessible, with Python's numbers."""

import base64
import importlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from linkcal import calibrate_scores

#: Where the browser has to be there (.ci/run), what is missing is an error, not a skip.
REQUIRED = os.environ.get("LINKCAL_BROWSER") == "required"
needed = importlib.import_module if REQUIRED else pytest.importorskip
webdriver = needed("selenium.webdriver")
pytestmark = pytest.mark.skipif(
    not REQUIRED and not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium or chromedriver is missing",
)
NAME = "<script>document.title = 'taken'</script>"
#: Rules of axe-core that WCAG 2.1 A and AA state.
AXE = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa"]}}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
        *("disable-background-networking", "disable-component-update", "hide-scrollbars"),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    assert shutil.which("chromedriver"), "LINKCAL_BROWSER=required, but chromedriver is missing"
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def found():
    """Scores twice too sure, with a group whose name is a script."""
    rng = np.random.default_rng(0)
    s = rng.normal(scale=2.0, size=4000)
    y, nodes = rng.random(4000) < 1 / (1 + np.exp(0.5 - 0.5 * s)), np.arange(4000)
    pairs = {"source": nodes, "target": nodes + 4000, "logit": s, "label": y, "kind": [NAME, "b"] * 2000}
    return calibrate_scores(pairs, groups=["kind"])


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    return found.write(tmp_path_factory.mktemp("report") / "run")["report"]


def opened(browser, page, width=1200, scheme="light"):
    emulated = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", emulated)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get_log("browser")
    browser.get(page.as_uri())
    return browser


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_quiet_accessible_and_as_wide_as_the_window(browser, page, width, scheme):
    opened(browser, page, width, scheme)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    box = "return document.getElementById('measured').getBoundingClientRect().right"
    assert browser.execute_script(box) <= width  # what the table shows is read without scrolling
    # axe-core comes with a package that has only this file to offer.
    axe = Path(needed("axe_selenium_python").__file__).parent
    browser.execute_cdp_cmd(
        "Runtime.evaluate",
        {"expression": (axe / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")},
    )
    answer = browser.execute_async_script("axe.run(document, arguments[0]).then(arguments[1])", AXE)
    assert len(answer["passes"]) > 10
    faults = [(each["id"], each["nodes"][0]["html"]) for each in answer["violations"]]
    assert faults == []
    if folder := os.environ.get("LINKCAL_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(folder) / f"report-{width}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))


@pytest.mark.parametrize(("place", "rate"), [(199, None), (279, 0.01), (79, 0.5)])
def test_the_slider_has_pythons_numbers(browser, page, found, place, rate):
    opened(browser, page)
    p, y = found.apply(asked(found))["probability"], found.test.label == 1
    share = y.mean() if rate is None else rate
    browser.execute_script(
        """const set = (id, value) => { const each = document.getElementById(id);
             if (value !== null) { each.value = value; } each.dispatchEvent(new Event("input")); };
           set("threshold", arguments[0]); set("rate", arguments[1]);""",
        place,
        None if rate is None else 100 * rate,
    )
    chosen = p >= (place + 1) / 400
    tpr, fpr = chosen[y].mean(), chosen[~y].mean()
    precision = share * tpr / (share * tpr + (1 - share) * fpr)
    shown, *numbers = (
        float(browser.find_element("id", name).text.split()[0]) / 100
        for name in ("shown", "precision", "recall")
    )
    assert numbers == pytest.approx([precision, tpr], rel=2e-3)
    moved = found.apply(asked(found), base_rate=float(share))["probability"]
    assert ((moved >= shown) == chosen).mean() > 0.998


def asked(found):
    nodes = np.arange(len(found.test.logit))
    return {"source": nodes, "target": nodes + len(nodes), "logit": found.test.logit}


def test_columns_sort_by_number_and_back(browser, page):
    opened(browser, page)
    names = [each.text for each in browser.find_elements("css selector", "#results thead button")]
    button = browser.find_elements("css selector", "#results thead button")[names.index("NLL")]
    cells = f"#results tbody tr td:nth-child({names.index('NLL') + 1})"
    for direction in (True, False):
        button.click()
        shown = [float(each.text.split()[0]) for each in browser.find_elements("css selector", cells)]
        assert shown == sorted(shown, reverse=direction)
        assert len(set(shown)) > 3


def test_names_stay_text_and_the_page_can_be_printed(browser, page):
    opened(browser, page)
    assert browser.title == "Calibrated scores of scores"
    assert NAME in browser.find_element("tag name", "body").text
    assert len(browser.print_page()) > 10_000
    assert page.stat().st_size < 1 << 20
