#!/bin/sh
# Fetches what the CUDA kernels are compiled and tested with on a machine without a GPU, by package name, into a folder
# outside the checkout: NVIDIA's run-time compiler in two versions (nvrtc-12.0/ and nvrtc-13.5/, from PyPI), and
# GStreamer's nvcodec plugin with its libraries (gstreamer/, from the distribution's packages, not installed). Prints
# the folder. Does nothing where they are there.
set -eu

folder="${SAPIENSSEG_CUDA:-${XDG_CACHE_HOME:-$HOME/.cache}/sapiensseg/cuda}"
mkdir -p "$folder"
scratch="$(mktemp -d "$folder/.fetch-XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

say() { printf '%s\n' "$*" >&2; }

# Runs a command up to three times: registries have their moments.
try() {
    for pause in 2 10 0; do
        "$@" && return 0
        sleep "$pause"
    done
    return 1
}

# Puts a folder that is whole in its place; what an earlier run left there half done goes.
place() {
    rm -rf "$2"
    mv "$1" "$2"
}

# nvrtc FOLDER PACKAGE VERSION LIBRARY BUILTINS: the two libraries out of the package's wheel. The first looks for the
# second beside itself.
nvrtc() {
    name="$1" package="$2" version="$3" library="$4" builtins="$5"
    [ -s "$folder/$name/$library" ] && [ -s "$folder/$name/$builtins" ] && return 0
    say "fetching $name ($package $version from PyPI)"
    try python3 -m pip download -q --no-deps --only-binary=:all: --disable-pip-version-check \
        -d "$scratch/$name.wheel" "$package==$version" ||
        { say "pip could not download $package $version: is python3-pip installed and PyPI reachable?"; exit 1; }
    python3 - "$scratch/$name.wheel" "$scratch/$name" "$library" "$builtins" <<'PYTHON'
import glob, os, shutil, sys, zipfile
wheels, target, *libraries = sys.argv[1:]
os.mkdir(target)
with zipfile.ZipFile(glob.glob(wheels + "/*.whl")[0]) as archive:
    for library in libraries:
        member = [name for name in archive.namelist() if name.endswith("/lib/" + library)]
        if not member:
            sys.exit(f"{archive.filename} holds no {library}")
        with archive.open(member[0]) as source, open(f"{target}/{library}", "wb") as copy:
            shutil.copyfileobj(source, copy)
PYTHON
    place "$scratch/$name" "$folder/$name"
}

root=""
[ "$(id -u)" -eq 0 ] || root="sudo"

download_debs() {
    for package in gstreamer1.0-plugins-bad libgstreamer-plugins-bad1.0-0; do
        (cd "$scratch" && apt-get -qq download "$package" >/dev/null 2>&1) || return 1
    done
}

download_nvcodec() {
    # Without package lists nothing can be found.
    download_debs || { $root apt-get update -qq && download_debs; }
}

# Only tests want it, of what meets GStreamer's own CUDA memory, so what can't be had is no error.
nvcodec() {
    [ -s "$folder/gstreamer/libgstnvcodec.so" ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        say "GStreamer's nvcodec plugin is fetched with apt-get, which is not here: tests that want it will skip"
        return 0
    fi
    say "fetching libgstnvcodec.so (gstreamer1.0-plugins-bad and libgstreamer-plugins-bad1.0-0)"
    if ! try download_nvcodec; then
        say "apt-get could not download gstreamer1.0-plugins-bad: tests that want its nvcodec plugin will skip"
        return 0
    fi
    mkdir "$scratch/unpacked" "$scratch/gstreamer"
    for deb in "$scratch"/*.deb; do
        dpkg-deb -x "$deb" "$scratch/unpacked"
    done
    # -a: most of the libraries' names are links to others in the same folder.
    find "$scratch/unpacked" \( -name libgstnvcodec.so -o -name 'libgst*-1.0.so.*' \) \
        -exec cp -a {} "$scratch/gstreamer/" \;
    [ -s "$scratch/gstreamer/libgstnvcodec.so" ] ||
        { say "gstreamer1.0-plugins-bad holds no libgstnvcodec.so"; exit 1; }
    place "$scratch/gstreamer" "$folder/gstreamer"
}

nvrtc nvrtc-12.0 nvidia-cuda-nvrtc-cu12 12.0.140 libnvrtc.so.12 libnvrtc-builtins.so.12.0
nvrtc nvrtc-13.5 nvidia-cuda-nvrtc 13.5.37 libnvrtc.so.13 libnvrtc-builtins.so.13.5
nvcodec

printf '%s\n' "$folder"
