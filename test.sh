#!/usr/bin/env bash
# Installs what the checks need, then runs them all. With --real-peers, it runs instead the stories with agents and clients of
# other projects; further arguments select stories (see CONTRIBUTING.md).
set -euo pipefail
cd "$(dirname "$0")"
# Without files for the next build, which CI does not do: a third of the disk space.
if [ -n "${CI-}" ]; then export CARGO_INCREMENTAL=0; fi

step() { printf '\n== %s\n' "$*"; }

# Installs a Debian package that has this command, if the command is missing.
install() {
    command -v "$1" >/dev/null && return
    local apt=(apt-get --quiet=2 -o Dpkg::Use-Pty=0)
    if [ "$(id -u)" != 0 ]; then apt=(sudo "${apt[@]}"); fi
    "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "$2" >/dev/null
}

# Debian has what `python3 -m venv` needs in a package of its own.
install_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null && return
    local version
    version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    install "python$version-venv" "python$version-venv"
}

if [ "${1-}" = --real-peers ]; then
    shift
    step "agents and clients of other projects"
    install npm npm
    install chromium chromium
    install_venv
    cargo build --quiet --package parlor --package parlor-peers
    exec "${CARGO_TARGET_DIR:-target}/debug/parlor-peers" "$@"
fi

step "a browser for the tests of the page"
install chromium chromium
install npm npm
npm install --silent --no-audit --no-fund --ignore-scripts --prefix target/npm axe-core@4.11.0

step "spelling"
if ! command -v typos >/dev/null && ! python3 -m typos --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore typos
fi
if command -v typos >/dev/null; then typos; else python3 -m typos; fi

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "tests"
# Beside the fixed seeds, the simulator runs new ones for a minute. A seed that fails is printed with the command that replays it.
mkdir -p target
log=target/tests.log
PARLOR_SIMULATE_SECONDS="${PARLOR_SIMULATE_SECONDS:-60}" cargo test --workspace --no-fail-fast \
    --features parlor-agent/listen,parlor-agent/persist,parlor-client/tls \
    --config "target.'cfg(all())'.runner = '$PWD/.ci/report-time'" 2>&1 |
    tee "$log" | { grep --line-buffered -vE '^test .* (ok|ignored)|^running |^$|^ *(Compiling|Running|Doc-tests) ' || true; }

printf '\nthe slowest tests:\n'
sed -nE 's/^test (.*) \.\.\. ok <([0-9.]+)s>$/\2 s  \1/p' "$log" | sort -rn | awk 'NR <= 10'

step "features"
cargo clippy --package parlor-client --no-default-features --quiet -- -D warnings
cargo clippy --package parlor-client --features tls --quiet -- -D warnings
for crate in parlor-store parlor-server; do
    cargo clippy --package "$crate" --no-default-features --quiet -- -D warnings
done
for features in "" persist listen persist,listen; do
    cargo clippy --package parlor-agent --no-default-features --features "$features" --all-targets --quiet -- -D warnings
done

if command -v cargo-deny >/dev/null; then
    step "dependencies"
    cargo deny check bans licenses sources
fi

printf '\nall checks passed\n'
