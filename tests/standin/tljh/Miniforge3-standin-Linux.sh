#!/bin/sh
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Stands in for Miniforge's installer below TLJH: what ../conda installs, with pip, and with records of what Miniforge has,
# for TLJH asks conda for them. mamba is conda, but reinstalls nothing. MINIFORGE_STANDIN in the environment is ../conda.
set -eu
[ "$1" = -b ] && [ "$2" = -p ]
prefix=$3
sh "$MINIFORGE_STANDIN/Miniforge3-standin-Linux.sh" -b -p "$prefix"
"$prefix/bin/python" -m ensurepip >/dev/null
ln -sf pip3 "$prefix/bin/pip"
record() {
    cat >"$prefix/conda-meta/$1-$2-0.json" <<RECORD
{"name": "$1", "version": "$2", "build": "0", "build_number": 0, "channel": "standin", "subdir": "noarch",
 "fn": "$1-$2-0.tar.bz2", "url": "file:///standin/noarch/$1-$2-0.tar.bz2", "depends": [], "files": []}
RECORD
}
record python "$("$prefix/bin/python" -c 'import platform; print(platform.python_version())')"
record pip "$("$prefix/bin/python" -c 'import pip; print(pip.__version__)')"
record conda 24.7.1
record mamba 1.5.8
cat >"$prefix/bin/mamba" <<'MAMBA'
#!/bin/sh
case " $* " in *" --force-reinstall "*) exit 0 ;; esac
exec "$(dirname "$0")/conda" "$@"
MAMBA
chmod 755 "$prefix/bin/mamba"
