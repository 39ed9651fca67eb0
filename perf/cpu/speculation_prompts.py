# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts of several kinds for the speculation benchmark, written for it.

They differ in what a drafter can use: an edit repeats its context nearly word for word, a summary reuses
names, code repeats its idioms, arithmetic its layout, and a conversation very little.
"""

from __future__ import annotations

CHAT = (
    "I moved to a new town last month and I still do not know anyone here. I like walking, old maps and "
    "cooking for other people. What could I do this weekend to meet a few neighbours without it feeling "
    "forced?"
)

CODE = """Complete this Python class. Keep the style of the methods that are already there.

class Inventory:
    def __init__(self):
        self.items = {}

    def add(self, name, count):
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        self.items[name] = self.items.get(name, 0) + count

    def remove(self, name, count):
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        if self.items.get(name, 0) < count:
            raise ValueError(f"only {self.items.get(name, 0)} of {name} left, cannot remove {count}")
        self.items[name] -= count

    def total(self):
"""

EDIT = """Repeat the following notice word for word, but change every mention of Tuesday to Thursday.

The reading room of the county archive will be closed on Tuesday morning while the heating is repaired.
Visitors who have ordered documents for Tuesday may collect them on Tuesday afternoon from the desk in the
entrance hall. Documents that are not collected by the end of Tuesday go back to the stacks and must be
ordered again. The lecture on river tolls planned for Tuesday evening takes place as announced, in the small
hall on the first floor.
"""

SUMMARY = """Summarise the report below in three sentences.

The survey boat Meridian left Port Halloran on the second of May to chart the shoals north of Cape Ansell,
where two coasters had gone aground within a year. Captain Imre Solvay had asked for a crew of nine and was
given seven. In the first week fog kept the boat at anchor for four days, and the tide gauge at Ansell light
was found to read eleven centimetres high, so that the soundings of the previous survey, made against the same
gauge, had all been too generous. The error explained the first of the two groundings. It did not explain the
second, which lay two miles to the east, over ground that every chart since 1911 had marked as clear. On the
nineteenth the Meridian's echo sounder found there a ridge of boulders, four metres below the surface at low
water and some sixty metres long. Solvay believed that the ridge had been dropped by ice in the hard winter of
1929, three years before the surveyors came back to the cape, and eighteen years after the last soundings were
taken. The harbour board accepted the new chart in June. It declined to pay for the two men Solvay had hired
on his own account, and he has not sailed for the board again. The gauge at Ansell light was reset in August.
"""

ARITHMETIC = """Work out the bill line by line, in the same layout, then give the sum.

12 chairs at 35 each: 12 * 35 = 420
 4 tables at 120 each: 4 * 120 = 480
30 cups at 3 each: 30 * 3 = 90
25 plates at 6 each:
18 lamps at 22 each:
 6 rugs at 75 each:
"""

PROMPTS = {"chat": CHAT, "code": CODE, "edit": EDIT, "summary": SUMMARY, "arithmetic": ARITHMETIC}
