"use strict";
// The page is whole without this. It adds: parts that renew themselves, ages that tick, tips, copying, and the theme.
// Text from a repository is only ever set as textContent.

const EVERY_MS = 5000;
const SLOW_MS = 30000;

// ---- renewing ----

const pulse = document.querySelector("[data-pulse]");

function isBusy(part) {
  const selection = document.getSelection();
  return part.contains(document.activeElement) || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

// False: whoever was signed in no longer is, and the page leads to where one signs in.
async function renew() {
  const parts = [...document.querySelectorAll("[data-live]")];
  const answer = await fetch(location.href, { headers: { accept: "text/html", "x-holdfast-renew": "1" }, redirect: "manual", cache: "no-store" });
  if (answer.type === "opaqueredirect") return false;
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of parts) {
    const other = fresh.getElementById(part.id);
    if (!other || other.dataset.live === part.dataset.live || isBusy(part)) continue;
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const places = [...part.querySelectorAll(".scroll")].map((one) => (isAtEnd(one) ? null : one.scrollLeft));
    part.replaceWith(document.adoptNode(other));
    [...other.querySelectorAll("details")].forEach((one, index) => { if (open[index] !== undefined) one.open = open[index]; });
    // Whoever has scrolled back is reading there: only what stood at its newest end follows the newest.
    [...other.querySelectorAll(".scroll")].forEach((one, index) => {
      if (index >= places.length) openPlot(one); else if (places[index] === null) showNewest(one); else one.scrollLeft = places[index];
    });
  }
  return true;
}

function pauseBetween() {
  const own = document.querySelector("[data-live-every]");
  return own ? Number(own.dataset.liveEvery) : EVERY_MS;
}

async function keepRenewing() {
  let pause = EVERY_MS;
  if (!document.hidden) {
    try {
      const known = await renew();
      pause = known ? pauseBetween() : SLOW_MS;
      if (known) say("live", "live"); else say("out", "sign in again", "/login");
    } catch {
      pause = SLOW_MS;
      say("lost", "not reached; trying again");
    }
  }
  setTimeout(keepRenewing, pause);
}

function say(kind, text, where) {
  if (!pulse || (pulse.dataset.kind === kind)) return;
  pulse.hidden = false;
  pulse.dataset.kind = kind;
  pulse.textContent = where ? "" : text;
  if (!where) return;
  const link = document.createElement("a");
  link.href = where;
  link.textContent = text;
  pulse.append(link);
}

// ---- ages ----

function worded(ms) {
  const seconds = ms / 1000;
  if (seconds < -1) return "in the future";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

function tick() {
  for (const one of document.querySelectorAll("time[data-age]")) {
    const text = worded(Date.now() - Number(one.dataset.age));
    if (one.textContent !== text) one.textContent = text;
  }
}

// ---- tips ----

const box = document.querySelector("[data-tip-box]");

function showTip(target) {
  if (!box) return;
  box.textContent = target.dataset.tip;
  box.hidden = false;
  const at = target.getBoundingClientRect();
  const own = box.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = at.top - own.height - 10;
  // Set through the CSSOM, which the policy allows; style attributes it does not.
  box.style.left = `${left}px`;
  box.style.top = `${above > 8 ? above : Math.min(at.bottom + 10, innerHeight - own.height - 8)}px`;
  markPoint(target);
}

function hideTip() {
  if (box) box.hidden = true;
  document.querySelectorAll(".point").forEach((one) => one.remove());
}

function markPoint(target) {
  document.querySelectorAll(".point").forEach((one) => one.remove());
  if (!target.dataset.x) return;
  const rule = document.createElementNS("http://www.w3.org/2000/svg", "line");
  rule.setAttribute("class", "point");
  for (const name of ["x1", "x2"]) rule.setAttribute(name, target.dataset.x);
  rule.setAttribute("y1", "0");
  rule.setAttribute("y2", target.getAttribute("height"));
  target.parentNode.insertBefore(rule, target.parentNode.firstChild);
}

document.addEventListener("pointerover", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) showTip(target); else hideTip();
});
document.addEventListener("focusin", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) showTip(target); else hideTip();
});
document.addEventListener("scroll", hideTip, { capture: true, passive: true });

// Arrows walk through the columns of a plot, the points of a line and the cells of a heat map: one stop for Tab, all of them for the arrows.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
  const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
  const here = event.target.closest("[data-columns] a, [data-grid] > *, [data-line] > [data-tip]");
  if (!step || !here) return;
  event.preventDefault();
  const all = [...here.parentNode.children].filter((one) => one.hasAttribute("data-tip"));
  const next = all[Math.min(Math.max(all.indexOf(here) + step, 0), all.length - 1)];
  here.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

// ---- copying ----

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.parentNode.querySelector("code"));
    document.getSelection().removeAllRanges();
    document.getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// ---- theme ----

const themes = ["auto", "light", "dark"];
const switcher = document.querySelector("[data-theme-switch]");

function nameTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  switcher.textContent = `Theme: ${now}`;
  return now;
}

if (switcher) {
  switcher.hidden = false;
  nameTheme();
  switcher.addEventListener("click", () => {
    const next = themes[(themes.indexOf(nameTheme()) + 1) % themes.length];
    if (next === "auto") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("holdfast-theme");
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("holdfast-theme", next);
    }
    nameTheme();
  });
}

// On a phone a plot is wider than the screen: its newest end is what one came for.
// As far as something is drawn: a tree that has just begun has all it has on the left.
function beyond(one) {
  const ends = [...one.querySelectorAll("svg *")].map((it) => it.getBoundingClientRect().right);
  return Math.max(0, Math.max(...ends) - one.getBoundingClientRect().right);
}
function isAtEnd(one) { return beyond(one) < 2; }
function showNewest(one) { one.scrollLeft += beyond(one); }

// A branch that was abandoned is what one opens a tree for: it opens where the last of them ends.
function openPlot(one) {
  showNewest(one);
  const off = [...one.querySelectorAll(".tree .off")].map((it) => it.getBoundingClientRect());
  if (!off.length) return;
  const own = one.getBoundingClientRect();
  const last = off.reduce((best, it) => (it.right > best.right ? it : best));
  if (last.right < own.left + 60) one.scrollLeft -= (own.left + own.right) / 2 - last.right;
}
document.querySelectorAll(".scroll").forEach(openPlot);

setInterval(tick, 1000);
if (document.querySelector("[data-live]")) setTimeout(keepRenewing, pauseBetween());
