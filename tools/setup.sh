#!/usr/bin/env bash
# Makes .venv and installs what building and testing need: Debian packages when root, else it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=() wished=()
while read -r name _; do
  case "$name" in "" | \#*) continue ;; esac
  dpkg-query -W -f '${Status}' "${name#\?}" 2>/dev/null | grep -q 'ok installed' && continue
  case "$name" in \?*) wished+=("${name#\?}") ;; *) missing+=("$name") ;; esac
done <packaging/apt.txt
python=$(command -v python3.11 || command -v python3)
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  missing+=(python3-dev)
"$python" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
"$python" -c 'import test.test_os' 2>/dev/null || missing+=("libpython$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite")

if ((${#missing[@]})); then
  if (($(id -u) == 0)) && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: these Debian packages are missing and only root can install them: ${missing[*]}" >&2
    echo "setup: run 'sudo apt-get install ${missing[*]}', then 'make setup' again" >&2
    exit 1
  fi
fi

if ((${#wished[@]})); then
  if (($(id -u) == 0)) && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    apt-get install -y -qq --no-install-recommends "${wished[@]}" >/dev/null 2>&1 ||
      for name in "${wished[@]}"; do # then those that can be had
        apt-get install -y -qq --no-install-recommends "$name" >/dev/null 2>&1 ||
          echo "setup: cannot install $name; the tests that need it are skipped" >&2
      done
  else
    echo "setup: without ${wished[*]} some tests are skipped; only root can install them" >&2
  fi
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install -q --upgrade pip
.venv/bin/python -m pip install -q -r packaging/requirements.txt
