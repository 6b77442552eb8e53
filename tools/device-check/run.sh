#!/bin/sh
# Checks and times the CUDA kernels and whole networks on this machine's card, in under six minutes on a fast one. Needs an NVIDIA
# driver of CUDA 12.0 or newer (525 and later), and the program `device-check` beside this script, which `make device-check` puts
# there. Where a Python has PyTorch, its times for the same operations and networks come beside ours. Everything is kept in
# device-check.txt and device-check.json, in the current folder. Arguments go to the program; SECONDS_IN_ALL says how long it all
# may take.
set -eu

here="$(cd "$(dirname "$0")" && pwd)"
figures="device-check.json"
begin="$(date +%s)"
in_all="${SECONDS_IN_ALL:-345}"

python="${PYTHON:-python3}"

rm -f "$figures"

# The cuBLASLt that PyTorch brings, for the times of products by it. Another one that the loader knows is found by itself.
cublaslt="$("$python" -c 'import glob, sys
found = [file for path in sys.path for file in glob.glob(path + "/nvidia/*/lib/libcublasLt.so.*")]
print(found[0].rpartition("/")[0] if found else "")' 2>/dev/null || true)"
if [ -n "$cublaslt" ]; then
    export LD_LIBRARY_PATH="$cublaslt${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

measure() {
    "$here/device-check" --json "$figures" "$@" || return
    if [ ! -e "$figures" ]; then
        echo "nothing was timed"
    elif "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        # The networks first: they are what is asked for if there is time for one of both.
        failed=0
        left="$((in_all - 45 - $(date +%s) + begin))"
        [ "$left" -gt 0 ] || left=0
        "$python" "$here/torch_networks.py" "$figures" --seconds "$left" || failed=$?
        if [ "$(($(date +%s) - begin))" -lt "$in_all" ]; then
            "$python" "$here/torch_operations.py" "$figures" || failed=$?
        else
            echo "no time is left for PyTorch's operations one by one"
        fi
        return "$failed"
    else
        echo "PyTorch is not beside it: $python has no torch that sees the card"
    fi
}

# The pipe's own status is tee's.
status=0
{ measure "$@" 2>&1 || echo $? >"$figures.status"; } | tee device-check.txt
if [ -e "$figures.status" ]; then
    status="$(cat "$figures.status")"
    rm -f "$figures.status"
fi
exit "$status"
