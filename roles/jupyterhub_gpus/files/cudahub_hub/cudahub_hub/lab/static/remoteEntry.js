// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A JupyterLab extension as Lab's bootstrap wants it (a module federation container), written without a build.
// The notices come from a page of the hub's GPU service in a hidden frame: only a page below the service's own
// path may use the user's login there.

(() => {
  "use strict";

  const NAME = "cudahub-gpus";

  function pageOption(name) {
    const element = document.getElementById("jupyter-config-data");
    return (element && JSON.parse(element.textContent || "{}")[name]) || "";
  }

  function serviceUrl() {
    const prefix = pageOption("hubPrefix");
    if (!prefix) {
      return null;
    }
    const host = pageOption("hubHost") || window.location.origin;
    return new URL(prefix.replace(/\/?$/, "/") + "../services/gpus/", host).href;
  }

  function activate(app) {
    const url = serviceUrl();
    app.commands.addCommand(`${NAME}:open`, {
      label: "GPUs",
      caption: "Who holds which GPU, and how busy they are",
      isVisible: () => url !== null,
      execute: () => {
        window.open(url, "_blank", "noopener");
      },
    });
    if (url !== null) {
      app.restored.then(() => listen(app, url));
    }
  }

  function listen(app, url) {
    const shown = new Map();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.title = "Notices about GPUs";
    frame.src = `${url}notices?server=${encodeURIComponent(pageOption("hubServerName"))}`;

    async function show(notices) {
      for (const notice of notices) {
        if (!shown.has(notice.id)) {
          shown.set(notice.id, null);
          const id = await app.commands.execute("apputils:notify", {
            message: notice.text,
            type: "warning",
            options: { autoClose: false },
          });
          shown.set(notice.id, id);
        }
      }
      const current = new Set(notices.map((notice) => notice.id));
      for (const [key, id] of shown) {
        if (!current.has(key)) {
          shown.delete(key);
          if (id) {
            await app.commands.execute("apputils:dismiss-notification", { id });
          }
        }
      }
    }

    window.addEventListener("message", (event) => {
      const data = event.data;
      if (event.source === frame.contentWindow && data && data.type === NAME && Array.isArray(data.notices)) {
        show(data.notices).catch((error) => console.error("A notice about GPUs can't be shown:", error));
      }
    });
    document.body.appendChild(frame);
  }

  const plugin = {
    id: `${NAME}:plugin`,
    description: "Notices about the GPUs of this JupyterHub, and the way to their page.",
    autoStart: true,
    activate,
  };
  const modules = { "./extension": () => ({ __esModule: true, default: plugin }) };

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = {
    init: () => undefined,
    get: async (name) => {
      if (!(name in modules)) {
        throw new Error(`${NAME} has no module ${name}`);
      }
      return modules[name];
    },
  };
})();
