# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""ttnn, imported when one of its names is first used: what ops check and how they split work runs without it, and a
process sets its environment before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ttnn as ttnn
else:

    class _Ttnn:
        def __getattr__(self, name: str) -> Any:
            import ttnn

            return getattr(ttnn, name)

    ttnn = _Ttnn()
