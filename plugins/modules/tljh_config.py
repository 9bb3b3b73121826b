#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tljh_config
short_description: Set what is in the config.yaml of The Littlest JupyterHub
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Merges settings into the C(config.yaml) of The Littlest JupyterHub (TLJH), and says what has to be reloaded for
    them. It reloads nothing itself.
  - Only what is given is changed. Other settings, their order, comments and form stay.
  - Settings that TLJH's hub or proxy would not start with, or not heed, are refused before anything is written.
  - The file is replaced as a whole, under the lock that C(tljh-config) uses.
options:
  config:
    description:
      - Settings, as they are in C(config.yaml). Mappings are merged into those that are there, at any depth.
      - In C(users.admin), C(users.allowed), C(users.banned), the lists of C(users.extra_user_groups), and
        C(https.letsencrypt.domains), entries that are missing are added. Other lists are to be as given.
      - Keys at the top that TLJH does not know are kept in the file, for files in C(jupyterhub_config.d) and plugins.
      - Values of keys whose names look like those of secrets, as C(client_secret), C(password) or C(token), are neither
        shown nor logged.
    type: dict
    default: {}
  absent:
    description:
      - Settings to remove, as paths with dots, for example V(limits.memory). Mappings that become empty go, too.
      - TLJH then uses its default.
    type: list
    elements: str
    default: []
  exact:
    description:
      - Paths with dots of lists and mappings in O(config) that are to be exactly as given, for example V(users.admin).
    type: list
    elements: str
    default: []
  path:
    description:
      - Path of the file. A symbolic link stays one. A file that is new can be read by its owner only.
      - The hub's Python, with the library that TLJH uses, is expected in C(../hub/bin/python) beside its directory.
        Where there is none, ruamel.yaml or PyYAML of the Python that runs the module is used.
    type: path
    default: /opt/tljh/config/config.yaml
  backup:
    description: Whether to keep a copy of the file beside it, with the time in its name, before it is changed.
    type: bool
    default: true
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows the settings before and after, without secrets and comments.
    support: full
requirements:
  - Python 3.9 or later on the host
  - TLJH 2, or ruamel.yaml or PyYAML
notes:
  - Mistakes that the file has already, in settings that are not given, are warnings.
  - A file that is no YAML is not changed. The message names line and column.
  - C(tljh-config) of TLJH 2.0.0 refuses any change of a file in which C(limits.memory) is null or C(limits.cpu) is no
    whole number, although the hub takes them. For no limit, name them in O(absent).
"""

EXAMPLES = r"""
- name: Two admins more, limits, and a certificate of Let's Encrypt
  cudahub.gpu.tljh_config:
    config:
      users:
        admin: [ada, grace]
      limits:
        memory: 8G
        cpu: 4
      https:
        enabled: true
        letsencrypt:
          email: admin@example.org
          domains: [hub.example.org]
  register: hub_config

- name: Reload what reads them
  ansible.builtin.command:
    argv: [tljh-config, reload, "{{ item }}"]
  loop: "{{ hub_config.reload }}"
  changed_when: true

- name: These admins and no others, and no limit of memory
  cudahub.gpu.tljh_config:
    config:
      users:
        admin: [ada]
    exact: [users.admin]
    absent: [limits.memory]

- name: Log in with GitHub
  cudahub.gpu.tljh_config:
    config:
      auth:
        type: github
        GitHubOAuthenticator:
          client_id: "{{ github_client_id }}"
          client_secret: "{{ github_client_secret }}"
          oauth_callback_url: https://hub.example.org/hub/oauth_callback
          allowed_organizations: [example]
"""

RETURN = r"""
config:
  description: All settings of the file, or those that it would have in check mode. Secrets are masked.
  returned: success
  type: dict
  sample: {users: {admin: [ada, grace]}, limits: {memory: 8G}}
reload:
  description:
    - What has to be reloaded with C(tljh-config reload) for the change, V(hub), V(proxy), both or nothing.
    - The proxy has to be reloaded that way, not by restarting its service, since C(tljh-config) writes what it
      reads. systemd restarts the hub along with the proxy, which the hub's unit requires. Users' servers go on.
  returned: success
  type: list
  elements: str
  sample: [hub]
backup_file:
  description: The copy of the file as it was.
  returned: when there was a file that was changed, and O(backup) is set
  type: str
  sample: /opt/tljh/config/config.yaml.2026-03-01T120000Z
library:
  description: The library that read the file, with its version, and the hub's Python if it is the hub's.
  returned: success
  type: str
  sample: ruamel.yaml 0.18.17 of /opt/tljh/hub/bin/python
mistakes:
  description: What is wrong with the options or with what would come of them, one sentence each.
  returned: failure
  type: list
  elements: str
  sample: ["http.port is 0: give a number from 1 to 65535"]
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _tljh_config
from ansible_collections.cudahub.gpu.plugins.module_utils._tljh_config import ConfigError, Edited, NoLibraryError, Wish

LOCK_TIMEOUT = 10.0
SHORTEST_SECRET = 6
"""Ansible replaces each place where a text occurs, so that a shorter one would make others unreadable."""


class MistakesError(Exception):
    """What is asked for would not work."""

    def __init__(self, mistakes: t.Sequence[str]) -> None:
        """Take the sentences."""
        super().__init__(". ".join(mistakes))
        self.mistakes = list(mistakes)


def edited(path: str, wish: Wish) -> Edited:
    """The file with what is asked for. Raises MistakesError, ConfigError, NoLibraryError, OSError."""
    outcome = _tljh_config.edit_with(_tljh_config.hub_python(path), _tljh_config.read(path) or "", wish)
    before = problems(outcome.before)
    new = [sentence for sentence in problems(outcome.after) if sentence not in before]
    if new:
        raise MistakesError(new)
    return outcome


def problems(config: _tljh_config.Config) -> list[str]:
    """What a configuration can't be used with."""
    return [*_tljh_config.mistakes(config), *_tljh_config.contradictions(config)]


def act(module: AnsibleModule) -> dict[str, t.Any]:
    """Do what is asked for. Raises MistakesError, ConfigError, NoLibraryError, OSError."""
    options = module.params
    path = options["path"]
    wish = Wish(options["config"], options["absent"], options["exact"])
    wrong = [*_tljh_config.refused(wish), *_tljh_config.mistakes(wish.config)]
    if not os.path.isabs(path):
        wrong.append(f"path is {path!r}: give an absolute path")
    if wrong:
        raise MistakesError(wrong)
    outcome = edited(path, wish)
    result: dict[str, t.Any] = {}
    if outcome.changed and not module.check_mode:
        directory = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(directory):
            raise ConfigError(f"there is no directory {directory}: install TLJH, or create it with mode 0700")
        with _tljh_config.locked(path, LOCK_TIMEOUT):
            outcome = edited(path, wish)
            if outcome.changed:
                kept = _tljh_config.keep(path, time.time()) if options["backup"] else None
                _tljh_config.write(path, outcome.text)
                result = {} if kept is None else {"backup_file": kept}
    hide(module, outcome.before, outcome.after)
    for sentence in problems(outcome.after):
        module.warn(f"{path}: {sentence}")
    if outcome.comments_lost:
        module.warn(f"{path} has a form in which not all comments can be kept where settings change")
    before, after = _tljh_config.difference(outcome.before, outcome.after)
    return {
        **result,
        "changed": outcome.changed,
        "config": _tljh_config.masked(outcome.after),
        "reload": _tljh_config.reloads(outcome.before, outcome.after),
        "library": outcome.library,
        "diff": {"before_header": path, "after_header": path, "before": before, "after": after},
    }


def hide(module: AnsibleModule, *configs: _tljh_config.Config) -> None:
    """Let Ansible replace secrets wherever they may come up."""
    for config in configs:
        module.no_log_values.update(text for text in _tljh_config.secrets(config) if len(text) >= SHORTEST_SECRET)


def main() -> None:
    """Read the parameters, change, and return."""
    module = AnsibleModule(
        argument_spec={
            # The log of the host has the parameters of modules, except those with no_log.
            "config": {"type": "dict", "default": {}, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "exact": {"type": "list", "elements": "str", "default": []},
            "path": {"type": "path", "default": "/opt/tljh/config/config.yaml"},
            "backup": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    # All of config is taken for secrets until here, which would leave nothing readable of the result.
    module.no_log_values.clear()
    given = module.params["config"]
    hide(module, given)
    invocation = {"module_args": {**module.params, "config": _tljh_config.masked(given)}}
    path = module.params["path"]
    mistakes: list[str] = []
    try:
        module.exit_json(**act(module), invocation=invocation)
    except MistakesError as error:
        message, mistakes = str(error), error.mistakes
    except ConfigError as error:
        message = str(error)
    except NoLibraryError:
        message = "there is neither a hub of TLJH nor ruamel.yaml nor PyYAML on the host: install one of them"
    except OSError as error:
        message = f"{error.filename or path}: {error.strerror}"
    message = message if message.startswith(path) else f"{path}: {message}"
    module.fail_json(msg=message, mistakes=mistakes or [message], invocation=invocation)


if __name__ == "__main__":
    main()
