# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: dl_image_superfluous
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Builds of role dl_images that can go
description:
  - Returns the names of builds of role P(cudahub.gpu.dl_images#role) that are neither among the newest of their image,
    nor what is wanted now, nor in use by a container.
  - Names that others gave to these builds, and images that others made of them, are not among these.
options:
  _input:
    description: The images, as M(community.docker.docker_host_info) lists them.
    type: list
    elements: dict
    required: true
  containers:
    description: The containers, stopped ones included, as M(community.docker.docker_host_info) lists them.
    type: list
    elements: dict
    required: true
  wanted:
    description: Reference of the build that is wanted now, by the name of the image. Images of other names stay.
    type: dict
    required: true
  keep:
    description: Number of builds to keep of each image, the wanted one included.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Show what can go
  ansible.builtin.debug:
    msg: "{{ images | cudahub.gpu.dl_image_superfluous(containers=[], wanted=wanted, keep=1) }}"
  vars:
    wanted: {train: 'train:bbbbbbbbbbbb'}
    images:
      - Id: sha256:1
        Created: 1
        RepoTags: ['train:aaaaaaaaaaaa', 'train:v1', 'mine:1']
        Labels: {org.cudahub.role: dl_images, org.cudahub.image: train, org.cudahub.digest: aaaaaaaaaaaaa}
      - Id: sha256:2
        Created: 2
        RepoTags: ['train:bbbbbbbbbbbb']
        Labels: {org.cudahub.role: dl_images, org.cudahub.image: train, org.cudahub.digest: bbbbbbbbbbbbb}
  # => ["train:aaaaaaaaaaaa", "train:v1"]
"""

RETURN = r"""
_value:
  description: Names with tags.
  type: list
  elements: str
"""

from ansible_collections.cudahub.gpu.plugins.plugin_utils._dl_images import (
    DIGEST_LABEL,
    NAME_LABEL,
    OWN_LABEL,
    ROLE,
    Kept,
    superfluous,
)


def dl_image_superfluous(
    images: t.Iterable[t.Mapping[str, t.Any]],
    containers: t.Iterable[t.Mapping[str, t.Any]],
    wanted: t.Mapping[str, str],
    keep: int,
) -> list[str]:
    """The names of the builds that can go."""
    ours = [
        Kept(
            id=str(one["Id"]),
            name=str(labels[NAME_LABEL]),
            digest=str(labels.get(DIGEST_LABEL, "")),
            created=int(one["Created"]),
            tags=tuple(tag for tag in one.get("RepoTags") or [] if tag != "<none>:<none>"),
        )
        for one in images
        if (labels := one.get("Labels") or {}).get(OWN_LABEL) == ROLE and NAME_LABEL in labels
    ]
    used = {str(one["ImageID"]) for one in containers}
    return superfluous(ours, used, wanted, int(keep))


class FilterModule:
    """The filter dl_image_superfluous."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"dl_image_superfluous": dl_image_superfluous}
