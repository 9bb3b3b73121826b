# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role dl_images makes of what Docker 26.1 says of registries."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[3] / "roles" / "dl_images"
VARIABLES = {
    key: trust_as_template(value) if isinstance(value, str) else value
    for name in ("defaults", "vars")
    for key, value in yaml.safe_load((ROLE / name / "main.yml").read_text(encoding="utf-8")).items()
}
PAGE = (
    "error parsing HTTP {0} response body: invalid character '<' looking for beginning of value: "
    '"<html><head><title>{0}</title></head></html>"'
)
REFUSED = 'Get "http://127.0.0.1:4033/v2/": dial tcp 127.0.0.1:4033: connect: connection refused'


def evaluate(name: str, **known: t.Any) -> str:
    variables = {**VARIABLES, "inventory_hostname": "box", "ansible_check_mode": False, "ansible_facts": {}, **known}
    said = Templar(loader=DataLoader(), variables=variables).template(trust_as_template(f"{{{{ {name} }}}}"))
    return " ".join(str(said).split())


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("unauthorized: authentication required", "give the user of dl_images_registry the right"),
        ("denied: made up", "give the user of dl_images_registry the right"),
        (PAGE.format(403), "give the user of dl_images_registry the right"),
        ("name unknown: made up", "make that repository or project"),
        (PAGE.format(404), "make that repository or project"),
        (PAGE.format(413), "raise the size that it takes"),
        ("size invalid: made up", "raise the size that it takes"),
        ("received unexpected HTTP status: 500 Internal Server Error", "see to the registry"),
        (REFUSED, "see that box reaches it"),
        ('Get "https://r.example.org/v2/": dial tcp: lookup r.example.org: no such host', "see that box reaches it"),
    ],
)
def test_what_to_do_about_an_image_that_was_not_taken(said: str, advice: str) -> None:
    assert evaluate("_dl_images_push_advice", _dl_images_push_said=said).startswith(advice)


@pytest.mark.parametrize("username", ["", "me"])
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (REFUSED, "box does not reach registry 127.0.0.1:4033"),
        (REFUSED.replace("4033", "4040"), "box does not reach registry"),
        (REFUSED.replace("4033", "5000"), "box does not reach registry"),
        ("login attempt to http://127.0.0.1:4033/v2/ failed with status: 404 Not Found", "answers as no registry does"),
        (PAGE.format(404), "answers as no registry does: correct url in dl_images_registry"),
        (
            "failed with status: 500 Internal Server Error",
            "127.0.0.1:4033 fails (500 Internal Server Error): see to it",
        ),
        (
            'Get "http://127.0.0.1:5000/v2/": received unexpected HTTP status: 503 Service Unavailable',
            "127.0.0.1:4033 fails (503 Service Unavailable): see to it",
        ),
        (PAGE.format(502), "127.0.0.1:4033 fails (502): see to it"),
        ("failed with status: 403 Forbidden", ("wants a login", "does not take the user me with this password")),
        ("no basic auth credentials", ("wants a login", "does not take the user me with this password")),
        ('Get "https://x/v2/certificate/denied/": connection refused', "box does not reach registry"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown", "does not trust the certificate of"),
    ],
)
def test_why_nothing_can_be_pushed(said: str, sentence: str | tuple[str, str], username: str) -> None:
    """A port may have a status in it, such as 403, and refuses nobody."""
    found = evaluate(
        "_dl_images_registry_mistake",
        dl_images_registry={"url": "127.0.0.1:4033", "username": username, "password": "x"},
        _dl_images_login={"msg": said},
        _dl_images_registry_answer={"stderr": f"Error response from daemon: {said}"},
    )
    assert (sentence if isinstance(sentence, str) else sentence[username != ""]) in found


def gpu(**other: t.Any) -> dict[str, t.Any]:
    return {"count": 1, "pynvml": None, "simulated": False, "gpus": [{}], "driver": {"state": "ok"}, **other}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"count": 0}, "the host has no GPU"),
        (gpu(driver={"state": "not_loaded"}), "the host's driver is in state 'not_loaded'"),
        (gpu(), "no GPU of the host says its compute capability"),
    ],
)
def test_why_cuda_is_not_known(facts: dict[str, t.Any], reason: str) -> None:
    assert evaluate("_dl_images_no_cuda", ansible_facts={"gpu": facts}) == reason


@pytest.mark.parametrize(
    ("check", "pynvml", "images", "waits"),
    [
        (True, None, [{"name": "a"}], True),
        (True, None, [{"name": "a", "cuda": "13"}], False),
        (True, {"version": "13"}, [{"name": "a"}], False),
        (False, None, [{"name": "a"}], False),
    ],
)
def test_check_mode_on_a_host_without_the_binding(
    check: bool, pynvml: object, images: list[t.Any], waits: bool
) -> None:
    found = evaluate(
        "_dl_images_waits_for_binding",
        ansible_check_mode=check,
        dl_images_images=images,
        ansible_facts={"gpu": gpu(pynvml=pynvml)},
    )
    assert found == str(waits)
