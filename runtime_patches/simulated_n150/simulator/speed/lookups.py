# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decoded Tensix instructions and places of configuration fields, remembered.

The simulator decoded an instruction word three times on its way and looked three dictionaries up for each configuration
field, tens of thousands of times per second. Results are the same objects' values.
"""

from __future__ import annotations

from runtime_patches.simulated_n150.simulator.patch import Patch


def _remember_instructions() -> None:
    from framework.pe.tensix.util import TensixInstructionDecoder

    decode = TensixInstructionDecoder.getInstructionInfo
    known: dict[int, dict] = {}

    def get_instruction_info(cls, instruction):
        # Shared between callers, which only read it.
        info = known.get(instruction)
        if info is None:
            info = known[instruction] = decode(instruction)
        return info

    TensixInstructionDecoder.getInstructionInfo = classmethod(get_instruction_info)


def _remember_fields() -> None:
    from framework.pe.tensix.backend import TensixBackend
    from framework.pe.tensix.util import TensixConfigurationConstants as Constants

    many_words = TensixBackend.getConfigValue
    fields: dict[str, tuple[int, int, int] | None] = {}

    def place(key):
        Constants.init()
        if Constants._blackhole:
            raise ValueError("the remembered configuration fields are Wormhole's; the device is a Blackhole")
        found = Constants.config_constants.get(key)
        fields[key] = None if found is None else (found["ADDR32"], found["MASK"], found["SHAMT"])
        return fields[key]

    def get_config_value(self, state_id, key, words=1):
        if words != 1:
            return many_words(self, state_id, key, words)
        field = fields[key] if key in fields else place(key)
        if field is None:
            raise IndexError(f"'{key}' not in constants")
        return (self.config_unit.config[state_id][field[0]] & field[1]) >> field[2]

    def get_thread_config_value(self, issue_thread, key):
        field = fields[key] if key in fields else place(key)
        if field is None:
            return 0
        return (self.config_unit.threadConfig[issue_thread][field[0]] & field[1]) >> field[2]

    TensixBackend.getConfigValue = get_config_value
    TensixBackend.getThreadConfigValue = get_thread_config_value


def _apply() -> None:
    _remember_instructions()
    _remember_fields()


PATCH = Patch(
    name="remembered look-ups",
    rule="decoded instructions and places of configuration fields are kept",
    source="the installed simulator",
    targets={
        "framework.pe.tensix.util.TensixInstructionDecoder": "932f1352abc26bef",
        "framework.pe.tensix.util.TensixConfigurationConstants": "246127cfcb8a7fa4",
        "framework.pe.tensix.backend.TensixBackend": "2da3cdbe38450bc1",
        "framework.pe.tensix.backends.config.TensixBackendConfigurationUnit": "55a727b29c6d0582",
    },
    apply=_apply,
)
