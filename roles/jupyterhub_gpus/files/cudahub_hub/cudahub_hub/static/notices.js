// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Hands the notices to a server's user to the page that has this one in a frame, which is JupyterLab.

(() => {
  "use strict";

  const PERIOD_MS = 30000;
  const { url, server, xsrf } = document.currentScript.dataset;

  async function tell(first) {
    const answer = await fetch(`${url}?${new URLSearchParams({ server })}`, { headers: { "X-XSRFToken": xsrf } });
    if (answer.status === 403) {
      if (!first) {
        window.location.reload();
      }
    } else if (answer.ok) {
      const { notices } = await answer.json();
      window.parent.postMessage({ type: "cudahub-gpus", notices }, window.location.origin);
    }
  }

  const attempt = (first) => tell(first).catch(() => undefined);
  setInterval(() => attempt(false), PERIOD_MS);
  attempt(true);
})();
