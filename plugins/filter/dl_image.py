# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: dl_image
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: What to build for the descriptions of deep-learning images
description:
  - Returns for each description of an image the Containerfile and the files of its build, its names, its labels, and
    the digest of all that goes into it, so that an image is built only if something of it has changed.
  - Returns a sentence for each mistake in the descriptions, too. An image with a mistake has no build.
  - Files that a description names are read on the controller.
options:
  _input:
    description: Descriptions as in O(cudahub.gpu.dl_images#role:main:dl_images_images).
    type: list
    elements: dict
    required: true
  settings:
    description: What all images share.
    type: dict
    required: true
    suboptions:
      base:
        description: Image to build on where a description says none. C({python}) stands for the version of Python.
        type: str
        required: true
      python:
        description: Version of Python where a description says none.
        type: str
        required: true
      cuda:
        description: V(12), V(13) or V(cpu), where a description says none. Empty if it is not known.
        type: str
        default: ""
      no_cuda:
        description: Why O(settings.cuda) is not known, for the sentence that says so.
        type: str
        default: the host has no GPU
      frameworks:
        description: Table of the lists of wheels, as in C(table.yml) of the role. Empty if there are none.
        type: dict
        default: {}
      locks:
        description: Folder of these lists.
        type: path
        default: ""
      folder:
        description: Folder of files that descriptions name by a relative path.
        type: path
        default: ""
      prefix:
        description: Registry and namespace, with a slash at the end. Empty for images that stay on the host.
        type: str
        default: ""
      files:
        description: Texts of the files that get into each image, by their names.
        type: dict
        default: {}
      micromamba:
        description: C(url) and C(checksum) of micromamba, for images with packages of conda.
        type: dict
        default: {}
      examples:
        description: C(url) and C(checksum) of the archive of PyTorch's examples.
        type: dict
        default: {}
      run:
        description: A word in the name of an image that is not proven yet, which tells this run from others.
        type: str
        default: ""
"""

EXAMPLES = r"""
- name: Show the mistakes of a description
  ansible.builtin.debug:
    msg: "{{ (images | cudahub.gpu.dl_image(settings)).mistakes }}"
  vars:
    settings: {base: 'debian:13-slim', python: '3.13', cuda: cpu}
    images:
      - {name: tools, command: [bash], pip: [six]}
  # => ["dl_images_images: image tools has pip 'six' which is not pinned: give name==version."]

- name: Show where an image is pushed to
  ansible.builtin.debug:
    msg: "{{ (images | cudahub.gpu.dl_image(settings)).images[0].repository }}"
  vars:
    settings: {base: 'debian:13-slim', python: '3.13', cuda: cpu, prefix: registry.example.org/team/}
    images:
      - {name: tools, command: [bash], apt: [python3-venv], pip: [six==1.17.0]}
  # => registry.example.org/team/tools
"""

RETURN = r"""
_value:
  description: The builds and the mistakes.
  type: dict
  contains:
    images:
      description:
        - The builds. C(reference) is the name and tag that say what is in the image, C(references) has the tag
          of the user's, too, and C(candidate) is the name until the image is proven.
      type: list
      elements: dict
    mistakes:
      description: A sentence for each mistake, which names the image and the key.
      type: list
      elements: str
"""

from dataclasses import asdict, fields
from pathlib import Path

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.plugin_utils._dl_images import LOCKS, Download, Settings, plan

PLACES = ("locks", "folder")


def dl_image(descriptions: t.Any, settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The builds and the mistakes as a dictionary. Raises AnsibleFilterError for arguments that can't be right."""
    if isinstance(descriptions, str) or not isinstance(descriptions, t.Sequence):
        raise AnsibleFilterError(f"dl_image: the input is {descriptions!r}, which is no list of descriptions")
    unknown = set(settings) - {one.name for one in fields(Settings)} - set(PLACES)
    if unknown or not {"base", "python"} <= set(settings):
        raise AnsibleFilterError(f"dl_image: settings need base and python, and have no {', '.join(sorted(unknown))}")
    shared = {"cuda": "", "frameworks": {}, **{key: settings[key] for key in settings if key not in PLACES}}
    for key in ("micromamba", "examples"):
        shared[key] = Download(**shared.get(key, {}))

    def read(name: str) -> str:
        ours = name.startswith(LOCKS)
        place = Path(settings.get("locks" if ours else "folder", ""))
        return (place / name.removeprefix(LOCKS)).read_text(encoding="utf-8")

    builds, mistakes = plan(descriptions, Settings(**shared), read)
    return {"images": [asdict(build) for build in builds], "mistakes": mistakes}


class FilterModule:
    """The filter dl_image."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"dl_image": dl_image}
