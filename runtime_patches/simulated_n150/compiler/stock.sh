# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
# Which kernels come with ttnn, and an empty one in their place where nothing executes.
#
# On a mock mesh programs are validated, allocated and compiled for, and that is all. Compiling ttnn's own kernels there
# says nothing about this project, nor about boards, whose compiler is another, and takes most of the time. Where the
# environment asks for it, each becomes the same object (empty_kernel.s), linked as a kernel of its core. Kernels from
# anywhere else, ours above all, are compiled as ever, and so is the firmware.
#
# Part of the launcher (toolchain.py), which sets $empty_kernel, $linker, $libc, $libgcc, $manifest (of a runtime root),
# $generated (the files that include a kernel's source) and $log: an empty kernel takes a tenth of what it takes Python
# to start. What is not stock goes on after the last line, with its arguments as given.

is_stock() { # All sources of the kernel whose unit's folder this is lie in the root: none for one given as text.
    stock=
    for name in $generated; do
        [ -f "../$name" ] || continue
        while IFS= read -r line || [ -n "$line" ]; do
            case $line in '#include "/'*'"'*) ;; *) continue ;; esac
            source=${line#'#include "'}
            case ${source%%'"'*} in "$root"/*) stock=yes ;; *) return 1 ;; esac
        done < "../$name"
    done
    [ -n "$stock" ]
}

root='' kind=link output='' depends='' other='' option=''
for argument do
    case $option in -o) output=$argument ;; -MF) depends=$argument ;; esac
    option=$argument
    case $argument in
        -c) kind=compile ;;
        -E | -S | --version) other=yes ;;
        -[IT]/*/runtime_roots/*)
            [ -z "$root" ] || continue
            path=${argument#-?} # store.find_root finds the runtime root it lies in by the same marks
            name=${path#*/runtime_roots/}
            root=${path%%/runtime_roots/*}/runtime_roots/${name%%/*}
            [ -f "$root/$manifest" ] || root=
            ;;
    esac
done
if [ -z "$other" ] && [ -n "$root" ] && [ -n "$output" ] && is_stock; then
    [ -z "$log" ] || printf '%s empty %s\n' "$kind" "$output" >> "$log"
    if [ $kind = compile ]; then
        [ -z "$depends" ] || printf '%s: %s\n' "$output" "$empty_kernel" > "$depends" || exit
        exec cp "$empty_kernel" "$output"
    fi
    # As driver.machine_code_link has it: the linker's own command.
    option=
    for argument do
        shift
        if [ "$option" = -o ]; then
            set -- "$@" "$argument"
        else
            case $argument in
                -Wl,*)
                    set -f
                    IFS=,
                    set -- "$@" ${argument#-Wl,}
                    set +f
                    unset IFS
                    ;;
                -o | -T* | -L* | [!-]*) set -- "$@" "$argument" ;;
            esac
        fi
        option=$argument
    done
    exec "$linker" -melf32lriscv "$@" --start-group "$libc" "$libgcc" --end-group
fi
