# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m models.llama31_8b.demo.support_table`: what the demo does on which device, as the docs show it."""

from __future__ import annotations

from collections.abc import Sequence

from .cli import SUPPORTS
from .options import ATTENTIONS, DRAFTERS, flag_of
from .support import Support


def table(supports: Sequence[Support]) -> str:
    """Return Markdown: what every backend does, then a row for each thing that one of them refuses, and the reasons."""
    rows: list[tuple[str, list[str | None]]] = [
        (f"`--attention {name}`", [s.attention[name] for s in supports]) for name in ATTENTIONS
    ]
    shown = {"ngram": "`--draft ngram`", "self": "`--draft self`", "model": "`--draft MODEL`"}
    rows += [(shown[kind], [s.drafting[kind] for s in supports]) for kind in DRAFTERS]
    rows.append(("chat", [s.chat for s in supports]))
    rows.append(("several prompts", [s.prompts for s in supports]))
    names = list(dict.fromkeys(name for s in supports for name in s.refused))
    rows += [(f"`{flag_of(name)}`", [s.refused.get(name) for s in supports]) for name in names]
    names = list(dict.fromkeys(name for s in supports for name in s.prompts_refuse))
    rows += [
        (
            f"several prompts with `{flag_of(name)}`",
            [s.prompts_refuse.get(name) or s.refused.get(name) or s.prompts for s in supports],
        )
        for name in names
    ]
    names = list(dict.fromkeys(name for s in supports for name in s.drafts_refuse))
    rows += [(f"drafting with {_with_drafts(name)}", [s.drafts_refuse.get(name) for s in supports]) for name in names]
    everywhere = [name for name, whys in rows if not any(whys)]
    rows = [(name, whys) for name, whys in rows if any(whys)]
    reasons = list(dict.fromkeys(why for _, whys in rows for why in whys if why is not None))
    mark = {why: f"no ({number})" for number, why in enumerate(reasons, 1)}
    lines = [
        f"On every device: {', '.join(everywhere)}.",
        "",
        "| | " + " | ".join(f"`--device {s.device}`" for s in supports) + " |",
        "|---" * (len(supports) + 1) + "|",
    ]
    lines += [
        f"| {name} | " + " | ".join("yes" if why is None else mark[why] for why in whys) + " |" for name, whys in rows
    ]
    lines += ["", *(f"{number}. {why}" for number, why in enumerate(reasons, 1))]
    return "\n".join(lines)


def _with_drafts(name: str) -> str:
    return "sink or static attention" if name == "attention" else f"`{flag_of(name)}`"


if __name__ == "__main__":
    print(table(SUPPORTS))
