# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrite, for GCC 12, the few constructs in the wheel's device sources that only newer compilers accept.

Two rules, each applied line by line so that line numbers stay true:

1. `static_assert(false, ...)` in a discarded branch of a template. GCC 13 judges it when the template is
   instantiated (CWG 2518), GCC 12 at once. As the body of a generic lambda it waits in GCC 12 too.
2. `#pragma GCC unroll N` with an N that is not a literal. GCC 12 wants a literal; the pragma is a hint and is
   dropped.
"""

import re
from pathlib import Path

# Device sources of the wheel that a Wormhole kernel can include.
SOURCE_FOLDERS = (
    "tt_metal/hw/inc",
    "tt_metal/hw/ckernels/wormhole_b0",
    "tt_metal/hw/firmware",
    "tt_metal/hostdevcommon",
    "tt_metal/fabric",
    "tt_metal/impl",
    "tt_metal/tt-llk/common",
    "tt_metal/tt-llk/tt_llk_wormhole_b0",
    "ttnn/cpp",
)
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".c", ".inl"}

_FALSE_ASSERT = re.compile(r"^(\s+)static_assert\(false,\s*(\"(?:[^\"\\]|\\.)*\")\);", re.MULTILINE)
_UNROLL = re.compile(r"^[ \t]*#pragma GCC unroll[ \t]*(?!\s*\d+\s*(?://.*)?$).*$", re.MULTILINE)


def rewrite(text: str) -> str:
    """Return `text` of one source file with both rules applied; the number of lines is unchanged."""
    text = _FALSE_ASSERT.sub(r"\1[](auto never) { static_assert(sizeof(never) == 0, \2); }(0);", text)
    return _UNROLL.sub("", text)


def rewritten_sources(ttnn_dir: Path) -> dict[str, str]:
    """Return {path relative to `ttnn_dir`: new text} of every device source that a rule changes."""
    changed = {}
    for folder in SOURCE_FOLDERS:
        for path in sorted((ttnn_dir / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if "static_assert(false" not in text and "#pragma GCC unroll" not in text:
                continue
            new = rewrite(text)
            if new != text:
                changed[path.relative_to(ttnn_dir).as_posix()] = new
    return changed
