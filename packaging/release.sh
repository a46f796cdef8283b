#!/bin/sh
# Makes a release of kvlease from this clone of git. Its files end in dist/VERSION.
#
#   sh packaging/release.sh [OPTION...] VERSION     for example 0.2.0
#
#   --dry-run      check, and list the steps; change nothing
#   --only STEP    this step only (repeatable), in the order below
#   --no-tests     leave the step "tests" out
#   --base IMAGE   base of the container image, by default the Containerfile's
#
# Steps:
#   check     nothing is uncommitted, CHANGELOG.md has a section for VERSION, and the tag is free
#   version   write VERSION into the file VERSION, and into the files that can't read it; commit
#   abi       compare libkvlease with its record, and with the record of the last release: abi.txt
#   tests     sh tests/run.sh
#   tag       an annotated tag vVERSION
#   tarball   kvlease-VERSION.tar.gz, from git archive. The next steps build from the same files
#   debs      packaging/deb.sh
#   rpm       packaging/rpm.sh; skipped where rpmbuild is missing
#   wheel     packaging/wheel.sh
#   image     kvleased-VERSION.oci.tar of packaging/kubernetes/Containerfile; skipped without podman and buildah
#   sbom      kvlease-VERSION.cdx.json: the files, and the libraries that they use (CycloneDX)
#   sums      SHA256SUMS
#
# Two runs for one commit give the same tarball and wheel. The script signs nothing and uploads nothing: sign SHA256SUMS
# and the tag, push the tag, and upload the files.
# Exit status: 0 done, 1 a step failed, 2 wrong command line.
set -eu

STEPS='check version abi tests tag tarball debs rpm wheel image sbom sums'
# Files with VERSION that don't read the file VERSION.
COPIES='packaging/compose/vllm.yaml packaging/helm/kvlease/Chart.yaml packaging/helm/kvlease/values.yaml
packaging/kubernetes/Containerfile packaging/kubernetes/kvleased.yaml'

usage() {
        sed -n 's/^# \{0,1\}//; 2,27p' "$0"
}

wrong() {
        echo "release.sh: $*: sh packaging/release.sh --help" >&2
        exit 2
}

die() {
        echo "release.sh: $*" >&2
        exit 1
}

dry=0
only=
without=
base=
version=
while [ $# -gt 0 ]; do
        case "$1" in
        --dry-run) dry=1 ;;
        --no-tests) without=tests ;;
        --only | --base)
                [ $# -gt 1 ] || wrong "$1 needs a value"
                if [ "$1" = --base ]; then
                        base=$2
                else
                        case " $STEPS " in
                        *" $2 "*) only="$only $2" ;;
                        *) wrong "there is no step '$2'" ;;
                        esac
                fi
                shift
                ;;
        -h | --help)
                usage
                exit 0
                ;;
        -*) wrong "there is no option $1" ;;
        *)
                [ -z "$version" ] || wrong "one VERSION, not '$version' and '$1'"
                version=$1
                ;;
        esac
        shift
done
echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || wrong "VERSION is three numbers, as in 0.2.0, not '$version'"

cd "$(dirname "$0")/.."
tag=v$version
dist=dist/$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
git rev-parse --git-dir >/dev/null 2>&1 || die "$PWD is no clone of git: clone kvlease, and run the script there"

# The committed files, as the tarball has them: $tree. Times in packages are those of the commit.
use_tree() {
        committed=$(git show HEAD:VERSION)
        [ "$committed" = "$version" ] || die "VERSION is $committed in the last commit: run --only version first"
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
        export SOURCE_DATE_EPOCH
        tree=$work/kvlease-$version
        mkdir -p "$dist"
        [ -d "$tree" ] || git archive --prefix="kvlease-$version/" HEAD | tar -xf - -C "$work"
}

skip() {
        echo "skipped: $1"
        skipped="${skipped-} $1"
}

step_check() {
        changed=$(git status --porcelain)
        [ -z "$changed" ] || die "uncommitted changes, commit or remove them:
$changed"
        grep -Eqx "## ($version( .*)?|Unreleased \($version\))" CHANGELOG.md ||
                die "CHANGELOG.md has no section '## Unreleased ($version)': add one with the changes"
        ! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || [ "$(git rev-parse "$tag^{commit}")" = "$(git rev-parse HEAD)" ] ||
                die "the tag $tag is of another commit: choose the next version"
}

step_version() {
        old=$(cat VERSION)
        # shellcheck disable=SC2086
        sed -i "s/\b$(echo "$old" | sed 's/\./\\./g')\b/$version/g" $COPIES
        echo "$version" >VERSION
        sed -i "s/^## Unreleased ($version)\$/## $version ($(date -u +%Y-%m-%d))/" CHANGELOG.md
        # shellcheck disable=SC2086
        git add VERSION CHANGELOG.md $COPIES
        git diff --cached --quiet || git commit -q -m "release: kvlease $version"
}

step_abi() {
        python3 tests/abi/abi.py || die "the ABI check failed or could not run: tests/abi/abi.py says why"
        last=$(git describe --abbrev=0 --tags --match 'v[0-9]*' --exclude "$tag" 2>/dev/null || true)
        mkdir -p "$dist"
        if [ -z "$last" ]; then
                echo "This is the first release." >"$dist/abi.txt"
                return
        fi
        git show "$last:tests/abi/libkvlease.abi" >"$work/last.abi"
        changes=0
        abidiff "$work/last.abi" tests/abi/libkvlease.abi >"$dist/abi.txt" || changes=$?
        # Bits of abidiff's exit status: 1 and 2 errors, 4 a change, 8 a change that breaks programs.
        [ $((changes & ~4)) -eq 0 ] || die "libkvlease breaks programs that were built with $last ($dist/abi.txt): change its soversion"
}

step_tests() {
        sh tests/run.sh
}

step_tag() {
        use_tree
        git rev-parse -q --verify "refs/tags/$tag" >/dev/null || git tag -a -m "kvlease $version" "$tag"
}

step_tarball() {
        use_tree
        git archive --prefix="kvlease-$version/" HEAD | gzip -9n >"$dist/kvlease-$version.tar.gz"
}

step_debs() {
        use_tree
        sh "$tree/packaging/deb.sh" "$dist"
}

step_rpm() {
        command -v rpmbuild >/dev/null || {
                skip "rpm (rpmbuild isn't installed: Debian's package rpm, Fedora's rpm-build)"
                return
        }
        use_tree
        nodeps=
        ! command -v dpkg >/dev/null || nodeps=--nodeps
        sh "$tree/packaging/rpm.sh" $nodeps "$dist"
}

step_wheel() {
        use_tree
        sh "$tree/packaging/wheel.sh" "$dist"
}

step_image() {
        builder=$(command -v podman || command -v buildah || true)
        [ -n "$builder" ] || {
                skip "image (neither podman nor buildah is installed)"
                return
        }
        use_tree
        for package in "$dist/kvleased_${version}"_*.deb "$dist/kvlease-tools_${version}"_*.deb \
                "$dist/kvlease-events_${version}"_*.deb "$dist/kvlease-exchange_${version}"_*.deb; do
                [ -e "$package" ] || die "$package is missing: run the step debs first"
        done
        "$builder" build -f "$tree/packaging/kubernetes/Containerfile" -t "kvleased:$version" \
                --timestamp "$SOURCE_DATE_EPOCH" ${base:+--build-arg BASE="$base"} "$dist"
        rm -f "$dist/kvleased-$version.oci.tar"
        "$builder" push "kvleased:$version" "oci-archive:$dist/kvleased-$version.oci.tar:kvleased:$version"
}

step_sbom() {
        use_tree
        python3 packaging/sbom.py "$version" "$dist" >"$work/sbom"
        cp "$work/sbom" "$dist/kvlease-$version.cdx.json"
}

step_sums() {
        mkdir -p "$dist"
        (cd "$dist" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -r sha256sum) >"$work/sums"
        cp "$work/sums" "$dist/SHA256SUMS"
}

for step in ${only:-$STEPS}; do
        [ "$step" != "$without" ] || continue
        echo "== $step"
        if [ "$dry" = 0 ] || [ "$step" = check ]; then
                "step_$step"
        fi
done
[ "$dry" = 0 ] || {
        echo "nothing was changed"
        exit 0
}
[ -z "${skipped-}" ] || echo "not in $dist:$skipped"
