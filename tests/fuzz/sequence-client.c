#include "tests/fuzz/sequence-client.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/sock.h"
#include "tests/fuzz/fuzz.h"

void client_know(struct space *s, const uint32_t *pages, size_t n)
{
        for (size_t i = 0; s && i < n; i++)
                s->known[s->n_known++ % N_KNOWN] = pages[i];
}

static void unmap(struct segment_map *m)
{
        if (m->at)
                munmap(m->at, m->bytes);
        *m = (struct segment_map){0};
}

static void map(struct segment_map *m, int fd)
{
        struct stat st;

        unmap(m);
        CHECK(fstat(fd, &st) == 0);
        m->bytes = (size_t)st.st_size;
        m->at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(m->at != MAP_FAILED);
}

static void take_hello(struct client *c, const Kvlease__V1__HelloReply *m)
{
        c->id = m->client_id;
        if (m->resume_token.len == CLIENT_TOKEN_BYTES)
                memcpy(c->token, m->resume_token.data, CLIENT_TOKEN_BYTES);
        if (m->group_token.len == GROUP_TOKEN_BYTES)
                memcpy(c->group, m->group_token.data, GROUP_TOKEN_BYTES);
}

static void take_ok(struct client *c, struct frame *f, const ProtobufCMessage *m)
{
        struct space *s = c->asked;

        switch (f->header.type) {
        case MSG_HELLO:
                take_hello(c, (const Kvlease__V1__HelloReply *)m);
                return;
        case MSG_SHM_OPEN:
                map(&c->ring, f->fds[0]);
                c->ring_tail = 0;
                return;
        case MSG_NS_OPEN:
                s->ns_id = ((const Kvlease__V1__NsOpenReply *)m)->ns_id;
                s->capacity = ((const Kvlease__V1__NsOpenReply *)m)->capacity_pages;
                return;
        case MSG_NS_SHARE:
                map(&s->pins, f->fds[1]);
                return;
        case MSG_NS_CLOSE:
                unmap(&s->pins);
                *s = (struct space){0};
                return;
        case MSG_SESSION_OPEN:
                s->sessions[c->seq % 4] = ((const Kvlease__V1__SessionOpenReply *)m)->session;
                return;
        }
}

static void take_pages(struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        if (type == MSG_LEASE)
                client_know(c->asked, ((const Kvlease__V1__LeaseReply *)m)->pages,
                        ((const Kvlease__V1__LeaseReply *)m)->n_pages);
        else if (type == MSG_LOOKUP)
                client_know(c->asked, ((const Kvlease__V1__LookupReply *)m)->pages,
                        ((const Kvlease__V1__LookupReply *)m)->n_pages);
        else if (type == MSG_PUBLISH)
                client_know(c->asked, ((const Kvlease__V1__PublishReply *)m)->pages,
                        ((const Kvlease__V1__PublishReply *)m)->n_pages);
        else if (type == MSG_SESSION_PAGES)
                client_know(c->asked, ((const Kvlease__V1__SessionPagesReply *)m)->pages,
                        ((const Kvlease__V1__SessionPagesReply *)m)->n_pages);
}

static void take_frame(struct client *c, struct frame *f)
{
        static struct arena arena;
        const struct msg_info *info = msg_find(f->header.type);
        const ProtobufCMessage *m;

        CHECK(f->header.flags == FRAME_REPLY || f->header.flags == FRAME_EVENT);
        CHECK(info);
        if (!arena.memory)
                CHECK(arena_init(&arena, ARENA_BUDGET_BYTES) == 0);
        arena_reset(&arena);
        m = msg_unpack(info->reply, &arena, f->payload, f->header.length);
        CHECK(m);
        if (!(f->header.flags & FRAME_REPLY))
                return;
        c->status = ((const Kvlease__V1__SimpleReply *)m)->status;
        take_pages(c, f->header.type, m);
        if (c->status == 0)
                take_ok(c, f, m);
}

void client_read(struct client *c)
{
        struct frame f;
        int r;

        while (c->fd >= 0 && sock_receive(c->fd, &c->parser) > 0) {
                while ((r = frame_parser_next(&c->parser, &f, NULL)) == 1) {
                        take_frame(c, &f);
                        frame_close_fds(&f);
                }
                CHECK(r == 0);
        }
}

void client_close(struct client *c)
{
        if (c->fd < 0)
                return;
        frame_parser_deinit(&c->parser);
        c->fd = fd_close(c->fd);
        c->peer_id = 0; /* the next daemon counts anew */
}

void client_forget(struct client *c)
{
        for (unsigned i = 0; i < N_SPACES; i++) {
                unmap(&c->spaces[i].pins);
                c->spaces[i] = (struct space){0};
        }
        unmap(&c->ring);
        c->ring_tail = 0;
}
