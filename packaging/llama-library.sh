#!/bin/sh
# llama-cpp-python with its libllama for the CPU, built from the package index's sources: for packages
# of engine-packages.sh, which calls it.
#
#   sh packaging/llama-library.sh PYTHON VERSION FOLDER
#
# PYTHON is one with pip. Into FOLDER go llama_cpp, and llama.h in llama_cpp/include. It takes 80 MB of
# download, 400 MB on disk meanwhile, and five minutes of a processor's time. Needs cmake, ninja and g++.
# Exit status: 0 it is there, 1 not, 2 wrong command line.
set -eu

case "$#:${1-}" in
1:-h | 1:--help)
        sed -n 's/^# \{0,1\}//; 2,9p' "$0"
        exit 0
        ;;
3:*) ;;
*)
        sed -n 's/^# \{0,1\}//; 2,9p' "$0" >&2
        exit 2
        ;;
esac
python=$1
version=$2
folder=$3
for tool in cmake ninja g++; do
        command -v "$tool" >/dev/null || {
                echo "libllama needs $tool: sh packaging/install-deps.sh test" >&2
                exit 1
        }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
"$python" -m pip download -q --disable-pip-version-check --no-cache-dir --no-deps --no-binary llama-cpp-python \
        -d "$work" "llama-cpp-python==$version" >&2
tar -C "$work" -xzf "$work"/llama_cpp_python-*.tar.gz
source=$(echo "$work"/llama_cpp_python-*/vendor/llama.cpp)
# The library alone, with the instructions that x86-64 has had since 2013: the folder may be kept where
# other processors read it.
cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
        -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
        -DGGML_LLAMAFILE=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN" \
        >"$work/log" 2>&1 && ninja -C "$work/build" -j "$(nproc)" llama >>"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        echo "libllama $version can't be built, see above" >&2
        exit 1
}
mkdir -p "$folder"
cp -r "$source/../../llama_cpp" "$folder"
mkdir -p "$folder/llama_cpp/lib" "$folder/llama_cpp/include"
cp -a "$work"/build/bin/*.so* "$folder/llama_cpp/lib"
cp "$source"/include/*.h "$source"/ggml/include/*.h "$folder/llama_cpp/include"
