"""What administrators ask, sent by the client that was written from docs/reference/PROTOCOL.md."""
from __future__ import annotations

import os

from scene import TOKENS, Daemon, Space, expect, hangs_up, test

# Found where scene looks for them.
import kvlease_pb2 as pb  # isort: skip
import kvclient as kv  # isort: skip


@test()
def administration(daemon: Daemon) -> None:
    space = Space(daemon.client(), "admin", set="pair", set_size=2)
    connection = space.connection
    pages, keys = space.publish(TOKENS[:48], tag=3)
    session = connection.tell("SESSION_OPEN", ns_id=space.id, id=b"x").session
    admin, monitor = daemon.admin(), daemon.watcher("monitor.sock")
    expect(admin.rows("ADMIN_STATUS")[0].pages_sealed == 3, "pages")
    expect(admin.tell("ADMIN_PROCESS").n_clients == 1, "clients")
    expect([d.tier for d in admin.rows("ADMIN_DEVICES")] == ["device", "host"], "devices")
    admin.tell("ADMIN_TENANT_SET", name="c", create=True, options=["limit=4MiB", "weight=7"])
    expect({t.name: t.weight for t in admin.rows("ADMIN_TENANTS")}["c"] == 7, "tenants")
    admin.tell("ADMIN_TENANT_REMOVE", name="c", force=True)
    expect(admin.ask("ADMIN_TENANT_REMOVE", name="c").status == kv.NOT_FOUND, "removed twice")
    rows = monitor.rows("ADMIN_NAMESPACES", tenant="a")
    expect([(n.name, n.model, n.pages_pinned) for n in rows] == [("admin", "foreign-model", 3)], rows)
    rows = monitor.rows("ADMIN_CLIENTS")
    expect([(c.name, c.pins, c.pid) for c in rows] == [("foreign", 3, os.getpid())], rows)
    expect(monitor.rows("ADMIN_REGIONS") and admin.rows("ADMIN_SETS")[0].name == "pair", "sets")
    expect(not monitor.rows("ADMIN_CODECS"), "codecs")
    expect(not monitor.rows("ADMIN_EXCHANGES"), "exchanges")
    expect(not monitor.rows("ADMIN_REMOTES"), "remotes")
    monitor.rows("ADMIN_EVICTIONS")
    rows = {(o.section, o.name, o.key): o for o in monitor.rows("ADMIN_CONFIG")}
    expect(rows["daemon", "", "log_level"].default_value == "info", rows)
    expect(rows["tenant", "a", "limit"].origin != "default" and not rows["device", "host", "memory"].waits, rows)
    expect([s.id for s in monitor.rows("ADMIN_SESSIONS", tenant="a")] == [b"x".hex()], "sessions")
    rows = admin.tell("ADMIN_EXPLAIN", tenant="a", ns="admin", keys=b"".join(keys)).explanations
    expect([e.state for e in rows] == [1, 1, 1], rows)
    expect(monitor.ask("ADMIN_PURGE", tenant="a").status == kv.DENIED, "the monitor's socket")
    # ANNOUNCE and LEASE of administrators are violations on their sockets, as theirs are here.
    other = daemon.admin()
    other.send("LEASE", ns_id=1, n_pages=1)
    expect(hangs_up(other), "LEASE on the admin socket")
    # A warm-up has nothing to do, recording writes a file.
    reply = admin.tell("ADMIN_WARM", action=pb.AdminWarmRequest.BEGIN, tenant="a", ns="admin", tags=[3])
    while reply.running:
        reply = admin.tell("ADMIN_WARM", action=pb.AdminWarmRequest.STATUS, tenant="a", ns="admin")
    expect(reply.there == 3 and reply.left == 0, reply)
    admin.tell("ADMIN_RECORD", action=pb.AdminRecordRequest.ON)
    space.release(space.lookup(keys))
    connection.tell("REQUEST_END", ns_id=space.id, request_id=1)
    expect(admin.tell("ADMIN_RECORD", action=pb.AdminRecordRequest.OFF).path, "a file")
    # Events: asked for, not sent.
    last = monitor.tell("ADMIN_EVENTS", last=1).next
    asked = monitor.send("ADMIN_EVENTS", after=last, wait_msec=60000, kinds=["dropped"])
    space.release(pages)
    connection.tell("SESSION_CLOSE", ns_id=space.id, session=session)
    expect(admin.tell("ADMIN_PURGE", tenant="a", ns="admin").count == 3, "purged")
    events = monitor.reply("ADMIN_EVENTS", asked)[0].events
    expect([e.kind for e in events] == ["dropped"] and events[0].tenant == "a", events)
    expect(admin.tell("ADMIN_SESSION_PURGE", tenant="a").count <= 1, "sessions")
    calls = {c.name for c in monitor.tell("ADMIN_COUNTERS").calls}
    expect({"LEASE", "PUBLISH", "ADMIN_PURGE"} <= calls, calls)
    admin.tell("ADMIN_DRAIN")
    while connection.event("NOTICE").kind != pb.NoticeEvent.DRAIN:
        pass  # NS_STALE, of the purge
    reply = connection.ask("LEASE", ns_id=space.id, n_pages=1)
    expect(reply.status == kv.DRAINING and reply.reason == 6, reply)
    expect(daemon.connect().ask("HELLO", min_version=1, max_version=1).status == kv.DRAINING, "nobody new")
    admin.tell("ADMIN_DRAIN", off=True)
    expect(connection.event("NOTICE").kind == pb.NoticeEvent.DRAIN_END, "drained")
    expect(admin.tell("ADMIN_RECALL", tenant="a").count >= 0, "recall")
    admin.tell("ADMIN_CHECK")
