"use strict";
// Runs before the page is drawn, so that a chosen theme does not flash.
(() => {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
