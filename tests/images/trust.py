# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""trust.py BUNDLE ROOT: makes the image at ROOT trust what a CA bundle trusts (for proxies that inspect TLS)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s+(.*?)\s+-----END CERTIFICATE-----", re.DOTALL)


def certificates(bundle: Path) -> dict[str, str]:
    """Return the PEM blocks of a bundle by their bare content."""
    if not bundle.is_file():
        return {}
    text = bundle.read_text(encoding="utf-8", errors="replace")
    return {"".join(match[1].split()): match[0] for match in CERTIFICATE.finditer(text)}


def main() -> None:
    """Install the certificates that the image lacks, and point pip at the image's bundle."""
    bundle, root = Path(sys.argv[1]), Path(sys.argv[2])
    known = certificates(root / "etc/ssl/certs/ca-certificates.crt")
    target = root / "usr/local/share/ca-certificates"
    target.mkdir(parents=True, exist_ok=True)
    for number, (content, pem) in enumerate(certificates(bundle).items()):
        if content not in known:
            (target / f"test-host-{number}.crt").write_text(pem + "\n", encoding="ascii")
    (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n", encoding="ascii")


if __name__ == "__main__":
    main()
