#!/bin/sh
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Stands in for Miniforge3-Linux-x86_64.sh of https://github.com/conda-forge/miniforge/releases: `install` does the work.
# That lies beside this file, or in the directory MINIFORGE_STANDIN. In the environment, MINIFORGE_STANDIN_WHEELS and
# MINIFORGE_STANDIN_PYTHON are its options --wheels and --python.
set -eu
prefix=$HOME/miniforge3 batch='' update=''

usage() {
    cat <<EOS
usage: $0 [options]

Installs Miniforge3 24.7.1-0

-b           run install in batch mode (without manual intervention),
             it is expected the license terms (if any) are agreed upon
-f           no error if install prefix already exists
-h           print this help message and exit
-p PREFIX    install prefix, defaults to $prefix, must not contain spaces.
-s           skip running pre/post-link/install scripts
-u           update an existing installation
EOS
}

while getopts bfhp:su option; do
    case $option in
        b) batch=1 ;;
        h) usage; exit 2 ;;
        p) prefix=$OPTARG ;;
        f | u) update=1 ;;
        s) ;;
        *) echo "ERROR: did not recognize option '$option', please try -h" >&2; exit 1 ;;
    esac
done

if [ -z "$batch" ]; then
    echo "ERROR: the stand-in asks nothing: only -b works" >&2
    exit 1
fi
case $prefix in
    *' '*) echo "ERROR: Cannot install into directories with spaces" >&2; exit 1 ;;
esac
if [ -z "$update" ] && [ -e "$prefix" ]; then
    echo "ERROR: File or directory already exists: '$prefix'" >&2
    echo "If you want to update an existing installation, use the -u option." >&2
    exit 1
fi

echo "PREFIX=$prefix"
set -- "$prefix"
[ -z "${MINIFORGE_STANDIN_WHEELS:-}" ] || set -- "$@" --wheels "$MINIFORGE_STANDIN_WHEELS"
[ -z "${MINIFORGE_STANDIN_PYTHON:-}" ] || set -- "$@" --python "$MINIFORGE_STANDIN_PYTHON"
"${MINIFORGE_STANDIN_PYTHON:-python3}" "${MINIFORGE_STANDIN:-$(dirname "$0")}/install" "$@"
echo "installation finished."
