#!/bin/sh
# kvleased that believes no process without a challenge: $KVLEASED for the tests of clients.
exec "$KVLEASED_BUILT" "$@" --option daemon.liveness=challenge
