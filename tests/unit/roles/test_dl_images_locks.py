# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lists of wheels that role dl_images ships: each pinned and with hashes, and each makes an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter.dl_image import dl_image
from ansible_collections.cudahub.gpu.plugins.filter.dl_image_superfluous import dl_image_superfluous
from ansible_collections.cudahub.gpu.plugins.plugin_utils._dl_images import logical_lines, unpinned
from ansible_collections.cudahub.gpu.tests.tools import lock_dl_images

LOCKS = Path(__file__).parents[3] / "roles/dl_images/files/locks"
TABLE = yaml.safe_load((LOCKS / "table.yml").read_text(encoding="utf-8"))
PAIRS = [(framework, cuda) for framework, table in TABLE.items() for cuda in table["cuda"]]
NOT_FOR_CPUS = ("nvidia-", "cupy-")


def settings(**others: Any) -> dict[str, Any]:
    """Return settings with the shipped lists."""
    return {"base": "python:{python}-slim", "python": "3.13", "frameworks": TABLE, "locks": str(LOCKS), **others}


def test_the_table_and_the_files_are_the_tool_s() -> None:
    named = {row["lock"] for table in TABLE.values() for row in table["cuda"].values()}
    assert {path.name for path in LOCKS.glob("*.txt")} == named
    assert set(TABLE) == set(lock_dl_images.FRAMEWORKS)
    for framework, table in TABLE.items():
        also = {"cpu"} if framework in lock_dl_images.ALSO_WITHOUT_GPU else set()
        assert set(table["cuda"]) == {*lock_dl_images.FRAMEWORKS[framework], *also}


def test_the_size_of_what_is_downloaded() -> None:
    """Of each distribution one wheel is counted: the largest one for Linux on x86-64 and the newest Python."""
    names = {
        "a-1-cp313-cp313-manylinux_2_28_x86_64.whl": 1_000_000,
        "a-1-cp312-cp312-manylinux_2_28_x86_64.whl": 9_000_000,
        "a-1-cp313-cp313-manylinux_2_28_aarch64.whl": 9_000_000,
        "b-1-py3-none-any.whl": 200_000,
        "b-1-py2-none-any.whl": 9_000_000,
        "c-1-cp39-abi3-manylinux2014_x86_64.whl": 30_000,
        "d-1-cp313-cp313-win_amd64.whl": 9_000_000,
    }
    packages = "".join(
        f'[[packages]]\nname = "{name}"\nwheels = ['
        + ",".join(f'{{url = "https://x/{one}", size = {size}}}' for one, size in names.items() if one[0] == name)
        + "]\n"
        for name in "abcd"
    )
    assert lock_dl_images.download_bytes(packages) == 1_200_000


@pytest.mark.parametrize(("framework", "cuda"), PAIRS)
def test_the_size_of_each_list_is_known(framework: str, cuda: str) -> None:
    size = TABLE[framework]["cuda"][cuda]["bytes"]
    assert (1e8 if cuda == "cpu" else 1e9) < size < 1e10


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.stem)
def test_each_wheel_is_pinned_and_has_its_hash(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert "://" not in text
    assert unpinned(text) == []
    lines = logical_lines(text)
    hashed = [block for block in text.replace("\\\n", " ").splitlines() if "==" in block and "--hash=sha256:" in block]
    assert len(lines) == len(hashed) > 80
    assert any(line.startswith("jupyterlab==") for line in lines)
    if lock.stem.endswith("-cpu"):
        assert [line for line in lines if line.startswith(NOT_FOR_CPUS)] == []
    else:
        assert [line for line in lines if line.startswith(f"cupy-cuda{lock.stem[-2:]}x==")]


@pytest.mark.parametrize(("framework", "cuda"), PAIRS)
def test_each_pair_makes_an_image(framework: str, cuda: str) -> None:
    planned = dl_image([{"name": framework, "framework": framework, "cuda": cuda}], settings())
    assert planned["mistakes"] == []
    build = planned["images"][0]
    assert "--require-hashes" in build["files"]["Containerfile"]
    assert build["cupy"] is (cuda != "cpu")
    assert build["labels"]["org.opencontainers.image.version"] == TABLE[framework]["cuda"][cuda]["version"]


@pytest.mark.parametrize(("framework", "cuda"), [("tensorflow", "13"), ("rapids", "cpu"), ("pytorch", "12")])
def test_pairs_that_there_are_none_of(framework: str, cuda: str) -> None:
    planned = dl_image([{"name": "x", "framework": framework, "cuda": cuda}], settings())
    assert len(planned["mistakes"]) == 1
    assert f"image x has cuda {cuda} and there is no list of {framework}" in planned["mistakes"][0]


def test_files_of_the_user_are_read_beside_the_playbook(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("six==1.17.0\n")
    described = [{"name": "x", "requirements": "own.txt", "command": ["bash"], "cuda": "cpu"}]
    planned = dl_image(described, settings(folder=str(tmp_path)))
    assert planned["images"][0]["files"]["requirements.txt"] == "six==1.17.0\n"


@pytest.mark.parametrize(
    ("images", "others"), [("x", settings()), ([], {"base": "x"}), ([], settings(colour="red"))]
)  # fmt: skip
def test_arguments_that_can_not_be_right(images: Any, others: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"^dl_image: "):
        dl_image(images, others)


def test_images_without_labels_or_tags_are_listed_by_docker_too() -> None:
    labels = {"org.cudahub.role": "dl_images", "org.cudahub.image": "a", "org.cudahub.digest": "b" * 64}
    tags = ["a:" + "b" * 12, "a:2"]
    listed = [
        {"Id": "1", "Created": 1, "RepoTags": None, "Labels": None},
        {"Id": "2", "Created": 2, "RepoTags": ["<none>:<none>"], "Labels": labels},
        {"Id": "3", "Created": 3, "RepoTags": tags, "Labels": labels},
    ]
    assert dl_image_superfluous(listed, [], {"a": ""}, 0) == tags
    assert dl_image_superfluous(listed, [{"ImageID": "3"}], {"a": ""}, 0) == []
