#!/bin/sh
# Installs what is missing, builds, and runs the demo or the tests.
#
#   sh cmake/bootstrap.sh demo                     build and run compare_weights
#   sh cmake/bootstrap.sh test [--with FEATURE]... build and run the tests
#
# FEATURE  python   the tests that need Python packages
#          browser  the tests of pages and pictures in Chromium
#          format   the formatter that the `dev` preset checks with
#          aarch64  the tests of the kernels on an emulated aarch64 processor
#          fuzz     clang and its fuzzer, for tests/fuzz/run.sh
#
# System packages come from apt, as root or through sudo; where that is not possible the script names
# what is missing and stops. LibTorch's CPU build goes into .venv by pip, unless one is found; npm's
# packages go into tests/browser/node_modules; Highway for aarch64 goes into build/highway-aarch64.
set -eu

die() {
  echo "bootstrap.sh: $*" >&2
  exit 1
}

usage() {
  echo "usage: sh cmake/bootstrap.sh demo|test [--with python|browser|format|aarch64|fuzz]..." >&2
  exit 2
}

cd -- "$(dirname -- "$0")/.."

[ $# -ge 1 ] || usage
workflow=$1
shift
case $workflow in
  demo | test) ;;
  -h | --help) sed -n '2,16s/^# \{0,1\}//p' cmake/bootstrap.sh; exit 0 ;;
  *) usage ;;
esac
with_python=false
with_browser=false
with_format=false
with_aarch64=false
with_fuzz=false
while [ $# -gt 0 ]; do
  case "$1 ${2-}" in
    "--with python") with_python=true ;;
    "--with browser") with_browser=true ;;
    "--with format") with_format=true ;;
    "--with aarch64") with_aarch64=true ;;
    "--with fuzz") with_fuzz=true ;;
    *) usage ;;
  esac
  shift 2
done

# --- system packages -------------------------------------------------------------------------

has_header() {
  command -v c++ >/dev/null && echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1
}

has_venv() {
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1
}

has_chromium() {
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
    command -v google-chrome >/dev/null
}

missing_packages() {
  command -v c++ >/dev/null || echo g++
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v python3 >/dev/null || echo python3
  has_venv || echo python3-venv
  has_header hwy/highway.h || echo libhwy-dev
  has_header fmt/format.h || echo libfmt-dev
  has_header catch2/catch_all.hpp || has_header catch2/catch.hpp || echo catch2
  has_header CLI/CLI.hpp || echo libcli11-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header utf8cpp/utf8.h || echo libutfcpp-dev
  if $with_fuzz; then
    command -v clang++-14 >/dev/null || echo clang-14 libclang-rt-14-dev
  fi
  if $with_browser; then
    has_chromium || echo chromium
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
    command -v xmllint >/dev/null || echo libxml2-utils
    find /usr/share/fonts -name '*.[ot]tf' 2>/dev/null | grep -q . || echo fonts-dejavu-core
  fi
  if $with_aarch64; then
    command -v aarch64-linux-gnu-g++ >/dev/null || echo g++-aarch64-linux-gnu
    command -v qemu-aarch64 >/dev/null || command -v qemu-aarch64-static >/dev/null || echo qemu-user
  fi
}

install_packages() {
  command -v apt-get >/dev/null ||
    die "missing: $*. Install these (the names are Debian's) and run this again."
  if [ "$(id -u)" -eq 0 ]; then
    as_root=
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
  else
    die "missing: $*. Installing them needs root: run 'apt-get install $*' as root, then this again."
  fi
  echo "Installing $*"
  $as_root apt-get update -qq || die "cannot reach the package archive; missing: $*"
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    die "apt-get could not install: $*"
}

missing=$(missing_packages | tr '\n' ' ')
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086
  install_packages $missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || die "still missing after installing: $missing"
fi

# --- .venv: LibTorch, and what --with asks for -----------------------------------------------

# .venv/incomplete marks an environment that is being changed; find_libtorch.cmake passes it over.
open_venv() {
  if [ -e .venv/incomplete ]; then
    rm -rf .venv
  fi
  mkdir -p .venv
  : >.venv/incomplete
  [ -x .venv/bin/python ] || python3 -m venv .venv || {
    rm -rf .venv
    die "python3 could not make .venv"
  }
}

close_venv() {
  rm .venv/incomplete
}

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}

# The index that pip is configured to use, without the name and password it may contain.
pip_index() {
  index=$(.venv/bin/python -m pip config get global.index-url 2>/dev/null) || index=PyPI
  echo "${PIP_INDEX_URL:-$index}" | sed 's|//[^/@]*@|//|'
}

# pip_failed WHAT WHERE [ADVICE]
pip_failed() {
  die "pip could not install $1. It asked $2.
An index may be unreachable from here; pip's message above says more. ${3-}"
}

libtorch_version=2.13.0
libtorch_index=https://download.pytorch.org/whl/cpu

# PyPI's wheels for Linux are CUDA builds, for x86-64 and for aarch64. find_package(Torch) needs the
# CUDA toolkit for such a wheel, so the CPU build from PyTorch's index is the only choice.
case $(uname -s) in
  Linux) libtorch_wheel=torch==$libtorch_version+cpu ;;
  *) libtorch_wheel=torch==$libtorch_version ;;
esac

# The extra index may be unreachable while pip finds the wheel elsewhere.
install_libtorch() {
  echo "Installing LibTorch $libtorch_version (CPU) into .venv"
  pip_install --retries 0 --timeout 15 --extra-index-url "$libtorch_index" "$libtorch_wheel"
}

if ! cmake -P cmake/find_libtorch.cmake >/dev/null 2>&1; then
  open_venv
  trap 'rm -rf .venv; exit 1' INT TERM HUP
  install_libtorch || {
    asked="$(pip_index) and $libtorch_index"
    rm -rf .venv
    pip_failed "$libtorch_wheel" "$asked" \
      "If LibTorch is installed elsewhere, set Torch_DIR to the folder of its TorchConfig.cmake."
  }
  trap - INT TERM HUP
  close_venv
fi

if $with_python || $with_format; then
  open_venv
  # LibTorch may come from elsewhere, but its Python side has to be here too.
  if $with_python && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    install_libtorch ||
      pip_failed "$libtorch_wheel" "$(pip_index) and $libtorch_index" "--with python needs it."
  fi
  set --
  if $with_python; then set -- "$@" -r tests/python/requirements.txt; fi
  if $with_format; then set -- "$@" clang-format==14.0.6; fi
  pip_install "$@" || pip_failed "$*" "$(pip_index)"
  close_venv
fi

# --- Highway for aarch64 ------------------------------------------------------------------------

# Unpacks Debian's packages for arm64 instead of installing them: another architecture would change
# what apt-get does with this system. The package lists are private for the same reason.
get_aarch64_highway() (
  command -v apt-get >/dev/null || die "--with aarch64 needs apt-get, which downloads libhwy for arm64"
  rm -rf build/highway-aarch64
  mkdir -p build/highway-aarch64/apt/lists/partial build/highway-aarch64/apt/cache/archives/partial
  cd build/highway-aarch64/apt
  apt() {
    apt-get -qq -o APT::Architectures=arm64 -o APT::Sandbox::User= \
      -o "Dir::State::Lists=$PWD/lists" -o "Dir::Cache=$PWD/cache" "$@"
  }
  echo "Downloading Highway for aarch64"
  apt update && apt download libhwy-dev:arm64 libhwy1:arm64 ||
    die "apt-get could not download libhwy-dev:arm64 and libhwy1:arm64"
  for package in *.deb; do dpkg -x "$package" root || die "dpkg could not unpack $package"; done
  mv root/usr ..
  cd ..
  rm -rf apt
)

if $with_aarch64 && [ ! -e build/highway-aarch64/usr/include/hwy/highway.h ]; then
  get_aarch64_highway
fi

# --- what the browser's tests import ----------------------------------------------------------

if $with_browser; then
  npm ci --prefix tests/browser --silent --no-audit --no-fund ||
    die "npm could not install what tests/browser/package.json lists"
fi

exec cmake --workflow --preset "$workflow"
