#!/usr/bin/env bash
# Compares third-party servers and clients with and without Pegboard between them: lists, calls, structured content, images,
# errors, elicitation, sampling, roots, progress, cancellation, state, resources and prompts. Prints a table, and fails on a
# difference that scripts/interop/exceptions.json does not list.
#   scripts/interop.sh [ROW…]    patterns of rows, such as 'FastMCP*'; all rows without one
# Needs Node 20 with npm, and Python 3.10; installs Node 22, the servers and the clients under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/interop
export PATH="$home/node/node_modules/node/bin:$PATH"
# Node resolves packages from the directory of the script.
cp scripts/interop/*.mjs "$home/node/"
rm -rf "$home/run"
python3 scripts/interop/compare.py "$pegboard" "$built/pegboard-testkit" "$home" "$home/run" "$@"
