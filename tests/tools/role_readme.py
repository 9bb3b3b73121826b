# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""role_readme.py ROLE...: writes the option tables of roles' READMEs from their meta/argument_specs.yml.

A table stands between the lines ``<!-- options:begin -->`` and ``<!-- options:end -->``; nothing else is touched.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from antsibull_docs_parser import dom
from antsibull_docs_parser.parser import Context, parse

BEGIN, END = "<!-- options:begin -->", "<!-- options:end -->"
BETWEEN = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)


def main() -> int:
    """Write the tables of the roles that are named as arguments."""
    for role in map(Path, sys.argv[1:]):
        readme = role / "README.md"
        text = readme.read_text(encoding="utf-8")
        if not BETWEEN.search(text):
            print(f"{readme}: has no lines {BEGIN} and {END} to write the options between.", file=sys.stderr)
            return 1
        readme.write_text(with_table(text, role), encoding="utf-8")
    return 0


def with_table(text: str, role: Path) -> str:
    """Return the text of a README with the table that belongs to its role."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    return BETWEEN.sub(lambda _match: table(specs), text)


def table(specs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return Markdown: the entry points, then the options of ``main`` and those that only others have."""
    lines = ["", "| Entry point | What it does |", "|---|---|"]
    lines += [f"| `{name}` | {markdown(spec['short_description'])} |" for name, spec in specs.items()]
    options: dict[str, Mapping[str, Any]] = {}
    for spec in specs.values():
        options = {**spec.get("options", {}), **options}
    lines += ["", "| Option | Type | Default | Meaning |", "|---|---|---|---|"]
    lines += [" | ".join(("", *row, "")).strip() for row in rows(options)]
    return "\n".join([*lines, "", ""])


def rows(options: Mapping[str, Mapping[str, Any]], parent: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of the options and, after each, those of its suboptions."""
    for name, option in options.items():
        kind = option.get("type", "str")
        description = option["description"]
        sentences = [description] if isinstance(description, str) else description
        meaning = " ".join(map(markdown, sentences))
        if "choices" in option:
            meaning += f" One of {', '.join(map(code, option['choices']))}."
        yield (
            f"`{parent}{name}`",
            f"{kind} of {option['elements']}" if "elements" in option else kind,
            "**required**" if option.get("required") else code(option["default"]) if "default" in option else "",
            meaning,
        )
        yield from rows(option.get("options", {}), f"{parent}{name}{'[]' if kind == 'list' else ''}.")


def code(value: object) -> str:
    """Return a value as YAML users would write it, as code in a cell of a table."""
    text = value if isinstance(value, str) and value else json.dumps(value)
    return f"`{text.strip()}`".replace("|", r"\|").replace("\n", " ")


def markdown(text: str) -> str:
    """Return a sentence of Ansible's documentation as Markdown for a cell of a table."""
    paragraph = parse(text, Context())[0]
    return re.sub(r"\s+", " ", "".join(map(part, paragraph))).replace("|", r"\|")


def part(piece: dom.AnyPart) -> str:
    """Return one piece of a sentence as Markdown."""
    rendered: str
    match piece:
        case dom.TextPart() | dom.RSTRefPart():
            rendered = piece.text
        case dom.BoldPart():
            rendered = f"**{piece.text}**"
        case dom.ItalicPart():
            rendered = f"*{piece.text}*"
        case dom.CodePart():
            rendered = f"`{piece.text}`"
        case dom.ModulePart():
            rendered = f"`{piece.fqcn}`"
        case dom.PluginPart():
            rendered = f"`{piece.plugin.fqcn}`"
        case dom.LinkPart():
            rendered = f"[{piece.text}]({piece.url})"
        case dom.URLPart():
            rendered = f"<{piece.url}>"
        case dom.OptionNamePart() | dom.ReturnValuePart():
            rendered = f"`{piece.name}`" if piece.value is None else f"`{piece.name}={piece.value}`"
        case dom.OptionValuePart():
            rendered = f"`{piece.value}`"
        case dom.EnvVariablePart():
            rendered = f"`{piece.name}`"
        case _:
            raise ValueError(f"{getattr(piece, 'message', piece.type.name)}: can't be shown in a table")
    return rendered


if __name__ == "__main__":
    raise SystemExit(main())
