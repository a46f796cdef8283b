#!/bin/sh
# Compares our declarations of the CUDA driver with the toolkit's cuda.h, where one is installed.
#
#   sh tests/tools/check-cuda.sh SOURCE_ROOT [CUDA_INCLUDE_DIR]
#
# Exit status: 0 equal, 1 not, 77 no toolkit.
set -eu

root=$1
for dir in ${2-} ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
        [ -e "$dir/cuda.h" ] || continue
        # The prototypes are of 13.0, which older toolkits don't have all of.
        version=$(sed -n 's/^#define CUDA_VERSION *//p' "$dir/cuda.h")
        if [ "$version" -lt 13000 ]; then
                echo "$dir/cuda.h is of version $version; 13000 or later is compared"
                exit 77
        fi
        cc=${CC-gcc}
        $cc -std=gnu11 -Wall -Wno-deprecated-declarations -fsyntax-only -isystem "$dir" -I "$root" \
                "$root/tests/tools/check-cuda.c" || exit 1
        echo "as $dir/cuda.h, version $version"
        exit 0
done
echo 'no cuda.h here: install the CUDA toolkit, or name the directory it is in'
exit 77
