#!/usr/bin/env bash
# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of a CPython 3.12 or 3.10 that can make a virtual environment (ttnn has wheels for these two
# only). Looks at $PYTHON, PATH, the versions folder of pyenv, then uv. Exit 1 and a plain message if there is none.
set -u

VERSIONS="3.12 3.10"
lacks_venv=""

# A pyenv shim exists for versions that are not active, so a candidate must be run to be believed.
version_of() { "$1" -I -c 'import sys; print(sys.implementation.name, "%d.%d" % sys.version_info[:2])' 2>/dev/null; }
can_make_venv() { "$1" -I -c 'import ensurepip, venv' 2>/dev/null; }

accept() {  # accept CANDIDATE VERSION: prints the real interpreter and ends the search when it fits
    [ "$(version_of "$1")" = "cpython $2" ] || return 1
    if ! can_make_venv "$1"; then
        lacks_venv="$1 (CPython $2)"
        as_root=""
        [ "$(id -u)" = 0 ] || { sudo -n true 2>/dev/null && as_root="sudo -n"; } || return 1
        command -v apt-get >/dev/null || return 1
        echo "Installing python$2-venv, which $1 needs to make a virtual environment" >&2
        { $as_root apt-get update -qq && $as_root apt-get install -y -qq "python$2-venv"; } >&2 || return 1
        can_make_venv "$1" || return 1
    fi
    "$1" -I -c 'import sys; print(sys.executable)'
    exit 0
}

if [ -n "${PYTHON:-}" ]; then
    for version in $VERSIONS; do accept "$PYTHON" "$version"; done
    echo "PYTHON=$PYTHON is '$(version_of "$PYTHON" || true)', but CPython 3.12 or 3.10 with venv is needed" >&2
    exit 1
fi
for version in $VERSIONS; do
    for name in "python$version" python3 python; do
        while IFS= read -r candidate; do accept "$candidate" "$version"; done < <(type -aP "$name")
    done
    pyenv_root="${PYENV_ROOT:-$HOME/.pyenv}"
    for candidate in $(ls -d "$pyenv_root/versions/$version".*/bin/python 2>/dev/null | sort -rV); do
        accept "$candidate" "$version"
    done
done
if command -v uv >/dev/null; then
    for version in $VERSIONS; do
        candidate=$(uv python find "$version" 2>/dev/null) && accept "$candidate" "$version"
    done
    uv python install 3.12 >&2 && candidate=$(uv python find 3.12 2>/dev/null) && accept "$candidate" 3.12
fi

{
    echo "No usable CPython 3.12 or 3.10 was found (ttnn has wheels for these two only)."
    [ -z "$lacks_venv" ] || echo "  $lacks_venv was found, but it lacks the venv module."
    echo "Install one of:"
    echo "  Ubuntu 24.04:     sudo apt-get install python3.12 python3.12-venv"
    echo "  Ubuntu 22.04:     sudo apt-get install python3.10 python3.10-venv"
    echo "  Debian and other: pyenv install 3.12    or    pipx install uv && uv python install 3.12"
    echo "or name an interpreter: make PYTHON=/path/to/python3.12 ..."
} >&2
exit 1
