# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: dl_image_failure
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Why an image could not be built
description:
  - Returns one sentence that says what was in the way of a build and what to do, with the line that Docker said last.
options:
  _input:
    description: What C(docker buildx build --progress plain) printed.
    type: str
    required: true
  name:
    description: Name of the image.
    type: str
    required: true
  status:
    description: Exit status of the build.
    type: int
    default: 1
  free_bytes:
    description: What is free on Docker's disk, as not every program says that it is full. Null if it is not known.
    type: int
  timeout:
    description: Seconds after which the build was stopped, which is status 124.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Show why a build failed
  ansible.builtin.debug:
    msg: "{{ log | cudahub.gpu.dl_image_failure('train') }}"
  vars:
    log: "ERROR: step 3 ended with 1"
  # => "Image train could not be built, because a step failed. Docker said last: ERROR: step 3 ended with 1"
"""

RETURN = r"""
_value:
  description: The sentence.
  type: str
"""

from ansible_collections.cudahub.gpu.plugins.plugin_utils._dl_images import failure


def dl_image_failure(log: str, name: str, status: int = 1, free_bytes: int | None = None, timeout: int = 0) -> str:
    """Why an image could not be built."""
    return failure(name, log, int(status), None if free_bytes is None else int(free_bytes), int(timeout))


class FilterModule:
    """The filter dl_image_failure."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"dl_image_failure": dl_image_failure}
