# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Find the words of the Tensix configuration that hold a field."""

from __future__ import annotations

from operator import itemgetter


def words_of(names) -> itemgetter:
    """Return a getter of the words that hold these configuration fields in a state's or a thread's words: as long as
    they are the same, so is all that was made of the fields."""
    from framework.pe.tensix.util import TensixConfigurationConstants as Constants

    return itemgetter(*sorted({Constants.get_addr32(name) for name in names}))
