#!/bin/sh
# Builds the Debian packages and tries them beside a systemd of its own (boot.py), in a fresh Debian 12
# where one can be made, which needs debootstrap and Debian's mirror, else over this machine's root:
#   packages.sh SOURCE
set -eu
for tool in dpkg-buildpackage dh lintian; do
        if ! command -v "$tool" >/dev/null; then
                echo "skipped: $tool isn't installed (sh packaging/install-deps.sh package)"
                exit 77
        fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
packages=$work/packages

if ! sh "$1/packaging/deb.sh" --lintian "$packages" >"$work/log" 2>&1; then
        tail -n 50 "$work/log"
        exit 1
fi

# With what the test itself needs. What the packages depend on is only fetched: there is no network beside
# the systemd.
make_fresh() {
        debootstrap --variant=minbase --include=systemd,python3-minimal,libpython3-stdlib,gcc,libc6-dev \
                bookworm "$1" || return 1
        mkdir "$1/packages"
        cp "$packages"/*.deb "$1/packages"
        chroot "$1" sh -c 'apt-get install -y --no-install-recommends --download-only /packages/*.deb' &&
                rm -r "$1/packages"
}

root=/
if command -v debootstrap >/dev/null && make_fresh "$work/root" >"$work/log" 2>&1; then
        root=$work/root
else
        tail -n 5 "$work/log"
        echo "no fresh Debian can be made here: over this machine's root"
fi
python3 "$1/tests/system/boot.py" --packages --root "$root" --timeout 600 --bind packages="$packages" \
        --bind source="$1" /kvl/source/tests/system/test_packages.py
