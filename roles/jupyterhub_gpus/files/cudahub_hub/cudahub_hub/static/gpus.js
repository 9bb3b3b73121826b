// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Keeps the table up to date.

(() => {
  "use strict";

  const PERIOD_MS = 5000;
  const place = document.getElementById("gpus");

  async function refresh() {
    if (document.hidden) {
      return;
    }
    const answer = await fetch(place.dataset.url, { headers: { "X-XSRFToken": place.dataset.xsrf } });
    if (answer.status === 403) {
      window.location.reload();
      return;
    }
    if (answer.ok) {
      const text = await answer.text();
      const focused = document.activeElement && place.contains(document.activeElement) ? document.activeElement.id : "";
      place.innerHTML = text;
      const again = focused && document.getElementById(focused);
      if (again) {
        again.focus();
      }
    }
  }

  const url = new URL(window.location.href);
  if (url.searchParams.has("done")) {
    url.searchParams.delete("done");
    window.history.replaceState({}, "", url);
  }
  setInterval(() => refresh().catch(() => undefined), PERIOD_MS);
})();
