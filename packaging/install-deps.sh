#!/bin/sh
# Installs what kvlease needs on Debian 12 (for build and package: 13, too) from its own repositories, and nothing else.
#
#   sh packaging/install-deps.sh build    to build it and run the demo
#   sh packaging/install-deps.sh test     to run its tests as well
#   sh packaging/install-deps.sh package  to build its packages (packaging/deb.sh)
#   sh packaging/install-deps.sh full     to run all tests (tests/run.sh --full)
#
# Does nothing where everything is installed. Exit status: 0 all there, 1 not, 2 wrong command line.
set -eu

# zlib1g-dev, libzstd-dev: Debian 13's static libcrypto, which the wheel has inside, calls them.
build='gcc libc6-dev meson ninja-build pkg-config libuv1-dev libprotobuf-c-dev protobuf-c-compiler
libsystemd-dev libssl-dev libsmartcols-dev libjansson-dev libncurses-dev zlib1g-dev
liburing-dev libxxhash-dev libzmq3-dev libzstd-dev libmicrohttpd-dev systemtap-sdt-dev scdoc python3-dev python3-venv'
# g++: the public header must compile as C++, too. clang, libclang-rt: fuzzers. util-linux: unshare,
# nsenter. mount, systemd: tests beside a systemd of their own; on the machine it isn't started.
# chromium: opens the report of kvleasectl trace analyze and the page of kvlease-exporter. fio: what the disk tier is compared to.
# prometheus: promtool, for metrics and alerts.
# man-db, mandoc, groff-base: manual pages; zsh: completion. abigail-tools: abidiff. bpftrace: its
# scripts. redis-tools: has redis-server as well, under another name, and starts no service, which the
# package redis-server would. openssl: certificates. libhiredis: what kvlease-bench remote
# is compared to. python3-pyte: reads the screen of kvleasectl top. iproute2: links between hosts that
# are network namespaces. cmake: libllama (packaging/llama-library.sh).
test='libcmocka-dev valgrind g++ clang libclang-rt-14-dev clang-format cppcheck python3 python3-protobuf
protobuf-compiler libatomic1 python3-pyte strace
util-linux mount systemd procps spin chromium fio man-db mandoc groff-base zsh prometheus
abigail-tools bpftrace redis-tools openssl libhiredis-dev iproute2 cmake'
# podman: builds and runs the image. rpm: builds RPM packages.
full='podman rpm'
# Debian starts these at once and at every boot; here they are installed, and neither started nor enabled.
services='prometheus:prometheus.service podman:podman.service podman:podman.socket podman:podman-restart.service
podman:podman-auto-update.service podman:podman-auto-update.timer'
# python3-sphinx, python3-myst-parser: the documents' site (meson compile docs-site).
package='build-essential dpkg-dev debhelper dh-python lintian python3 python3-dev python3-venv systemd debootstrap
python3-sphinx python3-myst-parser'

usage() {
        sed -n 's/^# \{0,1\}//; 2,9p' "$0"
}

case "${1-}" in
build) wanted=$build ;;
test) wanted="$build $test" ;;
package) wanted="$build $package" ;;
full) wanted="$build $test $package $full" ;;
-h | --help)
        usage
        exit 0
        ;;
*)
        usage >&2
        exit 2
        ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        echo "install-deps: this is no Debian. Install what Debian 12 calls:" >&2
        echo "$wanted" >&2
        exit 1
fi

missing=
for package in $wanted; do
        # "hold ok installed" counts as well as "install ok installed".
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) in
        *' ok installed') ;;
        *) missing="$missing $package" ;;
        esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
        as_root='env'
elif command -v sudo >/dev/null 2>&1; then
        as_root='sudo env'
else
        echo "install-deps: no sudo here. As root: apt-get install --no-install-recommends$missing" >&2
        exit 1
fi

# Units of packages that are installed now. policy-rc.d is what Debian asks before it starts one; where there is
# one already, that decides.
off=
for service in $services; do
        case " $missing " in
        *" ${service%%:*} "*) off="$off ${service#*:}" ;;
        esac
done
policy=/usr/sbin/policy-rc.d
is_ours=0

keep_off() {
        if [ -n "$off" ] && [ ! -e "$policy" ]; then
                is_ours=1
                # shellcheck disable=SC2016
                printf '#!/bin/sh\ncase "%s " in *" $1 "* | *" $1.service "*) exit 101 ;; esac\n' "$off" |
                        $as_root tee "$policy" >/dev/null
                $as_root chmod 755 "$policy"
        fi
}

# They don't start at the next boot either: systemctl enable --now UNIT is for who wants one.
disable() {
        [ "$is_ours" = 0 ] || $as_root rm -f "$policy"
        is_ours=0
        for unit in $off; do
                if [ -e "/lib/systemd/system/$unit" ] && command -v systemctl >/dev/null; then
                        $as_root systemctl --quiet disable "$unit"
                        [ ! -d /run/systemd/system ] || $as_root systemctl stop "$unit"
                fi
        done
        off=
}

echo "install-deps: installing$missing"
trap disable EXIT
trap 'exit 130' INT TERM
keep_off
# Package lists may be missing (containers) or stale; $as_root and $missing are lists of words.
# shellcheck disable=SC2086
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
