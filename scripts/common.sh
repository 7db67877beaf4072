# Functions shared by the scripts, which source this file from the repository's root.

say() { printf '==> %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

require_python() {
  command -v python3 >/dev/null || fail "python3 was not found; install Python 3.10 or later"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "python3 is $(python3 --version); install Python 3.10 or later"
}

require_cxx() {
  command -v "${CXX:-g++}" >/dev/null || { [ -z "${CXX:-}" ] && command -v clang++ >/dev/null; } ||
    fail "no C++ compiler: ${CXX:-g++ or clang++} was not found; install one, e.g. apt-get install g++, or set CXX"
}

# make_venv FOLDER: create a virtual environment with pip, unless there is one.
make_venv() {
  "$1/bin/python" -m pip --version >/dev/null 2>&1 && return
  say "creating $1 with $(python3 --version)"
  python3 -m venv --clear "$1" ||
    fail "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
}

# pip_install FOLDER ARGUMENT...: run pip install in the environment FOLDER.
pip_install() {
  local venv=$1
  shift
  say "pip install $*"
  # setuptools would pack leftovers of earlier builds, including files removed since.
  rm -rf build
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null
}

# uv_install FOLDER ARGUMENT...: as pip_install, by uv, which takes a fifth of the processor's time for what the tests
# need (24 s instead of 112); by pip if uv is missing or fails.
uv_install() {
  local venv=$1
  { "$venv/bin/python" -m uv --version >/dev/null 2>&1 || pip_install "$venv" --constraint constraints.txt uv; } &&
    say "uv pip install ${*:2}" && uv_as_pip "$@" </dev/null || pip_install "$@"
}

# uv_as_pip FOLDER ARGUMENT...: run uv pip install with pip's own settings, which uv does not read.
uv_as_pip() {
  local venv=$1 settings options=(--index-strategy unsafe-best-match) word
  settings=$("$venv/bin/python" -m pip config list)
  for word in $(pip_setting index-url "$settings"); do options+=(--default-index "$word"); done
  for word in $(pip_setting extra-index-url "$settings"); do options+=(--index "$word"); done
  for word in $(pip_setting find-links "$settings"); do options+=(--find-links "$word"); done
  word=$(pip_setting cert "$settings")
  [ -z "$word" ] || local -x SSL_CERT_FILE=$word
  "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" "${options[@]}" "${@:2}"
}

# pip_setting NAME SETTINGS: print the words of one of pip's settings; those of the environment come first, and count.
pip_setting() { sed -n "s/^[^.]*\.$1='\(.*\)'\$/\1/; T; s/\\\\n/ /g; p; q" <<<"$2"; }

# has_memory_for GIBIBYTES: whether files in /dev/shm may take so much, and be executed.
has_memory_for() {
  local free
  free=$(df --block-size=1G --output=avail /dev/shm 2>/dev/null | tail -n 1) && [ "$free" -ge "$1" ] &&
    ! grep -q ' /dev/shm .*noexec' /proc/mounts
}

has_nvidia_driver() {
  [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1
}

# gpu_name: print the first GPU's name as used in file names, such as h200.
gpu_name() {
  local name
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader --id=0) || fail "nvidia-smi finds no GPU"
  name=${name#NVIDIA }
  name=${name,,}
  printf '%s' "${name// /-}"
}
