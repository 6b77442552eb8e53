#!/bin/sh
# Installs what building and testing need: C and C++ compilers, GStreamer 1.22 or newer with its headers, and the elements
# that tests and examples put around ours. Does nothing where everything is there. Debian 12/13, Ubuntu 24.04.
set -eu

say() { printf '%s\n' "$*" >&2; }

if ! command -v "${CARGO:-cargo}" >/dev/null 2>&1; then
    say "cargo is not installed: get Rust 1.92 or newer from https://rustup.rs"
    exit 1
fi

needed() {
    command -v cc >/dev/null 2>&1 && command -v c++ >/dev/null 2>&1 &&
        command -v gst-launch-1.0 >/dev/null 2>&1 &&
        pkg-config --exists 'gstreamer-1.0 >= 1.22' 'gstreamer-video-1.0 >= 1.22' 'gstreamer-check-1.0 >= 1.22' 2>/dev/null &&
        gst-inspect-1.0 --exists vp8enc && gst-inspect-1.0 --exists webmmux && gst-inspect-1.0 --exists avdec_h264 &&
        python3 -m pip --version >/dev/null 2>&1 &&
        /usr/bin/python3 -c 'import gi; gi.require_version("Gst", "1.0"); gi.require_version("GstVideo", "1.0")' 2>/dev/null
}

needed && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    say "GStreamer 1.22 or newer with headers (gstreamer-1.0, gstreamer-video-1.0, gstreamer-check-1.0), its tools,"
    say "base, good and libav plugins, PyGObject and C and C++ compilers are needed: please install them"
    exit 1
fi

root=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { say "installing packages needs root or sudo"; exit 1; }
    root="sudo"
fi

say "installing GStreamer and compilers"
$root apt-get update -qq
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    gcc g++ libc6-dev pkg-config python3 python3-pip python3-gi gir1.2-gst-plugins-base-1.0 \
    libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev \
    gstreamer1.0-tools gstreamer1.0-x gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-libav >/dev/null

needed || { say "something is still missing after the installation: run this script again with 'sh -x'"; exit 1; }
