#!/bin/sh
# What examples/live_agent.py does once, over plain HTTP; any language can do the same.
#
#   memcon serve configs/serve.yaml
#   sh examples/curl.sh http://127.0.0.1:8000 serve/agents/token
set -eu
url=$1
token=$(cat "$2")

post() { # path, JSON body
  curl --silent --show-error --fail-with-body --max-time 5 \
    --header "authorization: Bearer $token" --header "content-type: application/json" --data "$2" "$url$1"
}

# The paper's key of the state; the id makes a repeated request safe: the same id gets the same answer.
id="curl-$(date +%s)-$$"
key="paper/1|goal_type=find|step_phase=early|is_stuck=no|objects_held=0|locations=0|memory_size=0|plan_available=yes|learning_phase=cold"
decision=$(post /v1/decide "{\"table\": \"default\", \"decision_id\": \"$id\", \"keys\": [\"$key\"]}")
echo "$decision"

# Play the arm in "action_id", then tell how the task ended. The token says which decision this is about.
signed=$(printf '%s' "$decision" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
post /v1/outcome "{\"decision_id\": \"$id\", \"token\": \"$signed\", \"reward\": 1.0, \"position\": 0, \"num_decisions\": 1}"
echo
post /v1/cancel_episode "{\"table\": \"default\", \"episode_id\": \"$id\"}"
echo
curl --silent --show-error --fail-with-body --header "authorization: Bearer $token" "$url/v1/tables"
echo
