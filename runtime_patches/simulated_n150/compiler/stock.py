# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which kernels come with ttnn, and an empty one in their place where nothing executes.

On a mock mesh programs are validated, allocated and compiled for, and that is all. Compiling ttnn's own kernels there
says nothing about this project, nor about boards, whose compiler is another, and takes most of the time. Where the
environment asks for it (driver.py), each becomes the same object (empty_kernel.s), linked as a kernel of its core.
Kernels from anywhere else, ours above all, are compiled as ever, and so is the firmware.
"""

import store


def is_stock(folder, root):
    """True for a folder of a kernel whose sources all lie in the runtime root at the path `root`.

    False for a kernel given as text, and for a folder that is not a kernel's.
    """
    sources = store.kernel_sources(folder)
    return bool(sources) and all(source.startswith(f"{root}/") for source in sources)


def compile_empty(arguments, kernel):
    """In the place of a compilation: the object at the path `kernel` copied, and a dependency file that names it."""
    output = arguments[arguments.index("-o") + 1]
    store.write_whole(output, store.read(kernel))
    if "-MF" in arguments:
        text = f"{output}: {kernel}\n"
        store.write_whole(arguments[arguments.index("-MF") + 1], text.encode("utf-8", "surrogateescape"))
    return 0
