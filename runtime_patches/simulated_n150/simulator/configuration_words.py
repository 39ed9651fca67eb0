# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where the fields of the Tensix configuration are kept."""

from __future__ import annotations

from operator import itemgetter


def words_of(names) -> itemgetter:
    """What takes the words that hold these configuration fields out of a state's or a thread's: as long as they are the
    same, so is all that was made of the fields."""
    from framework.pe.tensix.util import TensixConfigurationConstants as Constants

    return itemgetter(*sorted({Constants.get_addr32(name) for name in names}))
