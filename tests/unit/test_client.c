/* The library with a daemon that behaves. Misbehaviour: test_client_faults.c. */

#include "tests/unit/child.h"
#include "tests/unit/client-support.h"

/* ---- connecting ----------------------------------------------------------------------------- */

static void script_bye(struct fake_peer *p)
{
        fake_welcome(p);
        fake_receive(p, MSG_BYE);
        fake_reply_simple(p, WIRE_OK, "");
        fake_expect_end(p);
}

TEST(test_connect_and_disconnect)
{
        uint8_t token[KVL_GROUP_TOKEN_BYTES];
        struct kvl_conn *conn;
        struct fake f;

        fake_start(&f, script_bye);
        assert_int_equal(test_connect(&f, 0, &conn), 0);
        assert_string_equal(kvl_tenant(conn), "blue");
        assert_int_equal(kvl_client_id(conn), FAKE_CLIENT_ID);
        kvl_group_token(conn, token);
        assert_memory_equal(token, "0123456789abcdef", 16);
        assert_true(kvl_fd(conn) >= 0);
        assert_int_equal(kvl_wants_write(conn), 0);
        kvl_disconnect(conn);
        kvl_disconnect(NULL);
        fake_stop(&f);
}

static void script_environment(struct fake_peer *p)
{
        const Kvlease__V1__HelloRequest *m =
                (const Kvlease__V1__HelloRequest *)fake_receive(p, MSG_HELLO);

        FAKE_CHECK(strlen(m->client_name) == 64);
        FAKE_CHECK(m->group_token.len == 16 && m->group_token.data[15] == 9);
        FAKE_CHECK(m->metadata_only && m->min_version == 1 && m->max_version == 1);
        fake_reply_simple(p, WIRE_TOO_MANY, "tenant blue has 8 of 8 clients");
        fake_expect_end(p);
}

TEST(test_options_and_environment)
{
        const uint8_t token[KVL_GROUP_TOKEN_BYTES] = {[15] = 9};
        char name[101];
        struct kvl_connect_options options = {
                .size = sizeof(options),
                .client_name = name,
                .group_token = token,
                .flags = KVL_CONNECT_METADATA_ONLY,
        };
        struct kvl_conn *conn = NULL;
        struct fake f;

        memset(name, 'n', sizeof(name) - 1);
        name[100] = '\0';
        fake_start(&f, script_environment);
        setenv("KVLEASE_SOCKET", f.path, 1);
        assert_int_equal(kvl_connect(&options, &conn), -EMFILE);
        assert_string_equal(kvl_last_error(), "tenant blue has 8 of 8 clients");
        assert_null(conn);
        unsetenv("KVLEASE_SOCKET");
        fake_stop(&f);
        options.flags = 8;
        assert_int_equal(kvl_connect(&options, &conn), -EINVAL);
        options.size = 0;
        assert_int_equal(kvl_connect(&options, &conn), -EINVAL);
}

TEST(test_nobody_there)
{
        char path[200], *in_dir;
        struct kvl_connect_options options = {.size = sizeof(options)};
        const char *dir = test_dir_make();
        struct kvl_conn *conn;

        in_dir = test_path(dir, "sock");
        options.socket_path = in_dir;
        assert_int_equal(kvl_connect(&options, &conn), -ENOENT);
        assert_non_null(strstr(kvl_last_error(), in_dir));
        assert_non_null(strstr(kvl_last_error(), "systemctl start kvleased"));
        assert_non_null(strstr(kvl_last_error(), "name another socket"));
        memset(path, 'x', sizeof(path) - 1);
        path[199] = '\0';
        options.socket_path = path;
        assert_int_equal(kvl_connect(&options, &conn), -ENAMETOOLONG);
        free(in_dir);
        test_dir_remove(dir);
}
