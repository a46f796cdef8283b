#include "client/ctl/examples.h"

#include <string.h>

#include "client/ctl/option.h"

/* ---- examples -------------------------------------------------------------------------------- */

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddee01"

const struct example examples[] = {
        {"status", "kvleasectl status", "whether all is well, and the figures"},
        {"status", "kvleasectl status --json | jq '.well, .findings'", "the same for a program"},
        {"devices", "kvleasectl devices", "memory of each GPU, and whether its driver answers"},
        {"tenants list", "kvleasectl tenants", "who has how much, of which limit"},
        {"tenants show", "kvleasectl tenants show search", "attributes, limits and waits of one"},
        {"tenants add", "kvleasectl tenants add search limit=4GiB weight=200 group=search",
                "one for the members of a group"},
        {"tenants set", "kvleasectl tenants set search limit=8GiB", "more memory, from now on"},
        {"tenants set", "kvleasectl tenants set chat class=pinned reserve=16GiB",
                "memory that nobody takes from it"},
        {"tenants remove", "kvleasectl tenants remove search --force",
                "also where it has cached pages"},
        {"namespaces", "kvleasectl namespaces --tenant search",
                "its models, and how often they hit"},
        {"clients", "kvleasectl clients --tenant search", "its processes, and what they hold"},
        {"regions", "kvleasectl regions", "what is reserved, lent, missing and why"},
        {"top", "kvleasectl top --view namespaces --sort hit/s",
                "where the hits are, at this moment"},
        {"top", "kvleasectl top --batch --count 60 --interval 10 >> top.log",
                "ten minutes of it as text"},
        {"evictions", "kvleasectl evictions --tenant search", "whose pages went for whose leases"},
        {"events", "kvleasectl events --since 10min", "what happened in the last ten minutes"},
        {"events", "kvleasectl events --follow --tenant chat --kind evicted,refused",
                "why chat loses pages and leases, as it happens"},
        {"sessions list", "kvleasectl sessions --tenant chat", "its conversations"},
        {"sessions purge", "kvleasectl sessions purge chat --idle 1d",
                "those that nobody has used for a day"},
        {"sets", "kvleasectl sets", "how complete the keys of ranks and layer groups are"},
        {"exchanges", "kvleasectl exchanges --tenant chat",
                "what it finds on other hosts, and whether their store answers"},
        {"remote", "kvleasectl remote cluster",
                "which of its nodes answer, how fast, and why the others don't"},
        {"codecs", "kvleasectl codecs --tenant chat",
                "how cold pages are stored, and how far their numbers are off"},
        {"explain", "kvleasectl explain chat llama " KEY, "whether it is cached, or why not"},
        {"trace replay", "kvleasectl trace replay day.jsonl.gz --policies all --capacities 5%",
                "what each eviction policy would have hit"},
        {"trace analyze", "kvleasectl trace analyze day.jsonl.gz --html report.html",
                "lengths, repeats and demand, with plots"},
        {"trace recommend", "kvleasectl trace recommend day.jsonl.gz --token-bytes 128KiB",
                "a configuration, with its reasons"},
        {"trace hosts",
                "kvleasectl trace hosts day.jsonl.gz --size 64GiB --token-bytes 128KiB "
                "--prefill-rate 10000",
                "10 and 100 hosts of an 8B model, with and without affinity"},
        {"trace hosts",
                "kvleasectl trace hosts day.jsonl.gz --size 64GiB --token-bytes 128KiB "
                "--prefill-rate 10000 --hosts 1000 --store size=1TiB,evict=lfu,expire=6h",
                "how many nodes of a larger store 1000 hosts need"},
        {"trace record", "kvleasectl trace record on --size 64MiB",
                "from now on, in files of at most 64 MiB"},
        {"warm", "kvleasectl warm chat llama --tag 7", "the pages of one tag, and wait for them"},
        {"purge", "kvleasectl purge chat llama --remove", "what it has cached, and the namespace"},
        {"recall", "kvleasectl recall search --size 4GiB --wait",
                "room on a GPU, for another engine to start"},
        {"drain", "kvleasectl drain --timeout 5min", "before the host goes down"},
        {"drain", "kvleasectl drain --export --timeout 10min",
                "and other hosts are to find what is cached here"},
        {"drain", "kvleasectl drain --off", "the host stays after all"},
        {"config show", "kvleasectl config show --changed",
                "what is configured, in which line, and what of it waits"},
        {"reload", "kvleasectl reload", "what changed, and what waits for a restart"},
        {"restart", "kvleasectl restart --check --binary /tmp/next/usr/sbin/kvleased",
                "what an upgrade to that one would lose"},
        {"restart", "kvleasectl restart", "restart, where nothing is lost by it"},
        {"check", "kvleasectl check", "before a bug is reported"},
        {"doctor", "kvleasectl doctor --all", "every check, also what is in order"},
        {"doctor", "kvleasectl doctor --root /host",
                "in a container that has the host's files there"},
        {"version", "kvleasectl version", "of both programs, and of their protocol"},
};
const size_t n_examples = ARRAY_SIZE(examples);

/* ---- the environment ------------------------------------------------------------------------- */

const struct variable variables[] = {
        {"KVLEASE_ADMIN_SOCKET",
                "the admin socket, where neither --socket nor --runtime-dir is given"},
        {"KVLEASE_COLUMNS",
                "how wide lists and texts may be, wherever they go; by default as COLUMNS or the "
                "terminal says, and lists that don't go to a terminal as they come"},
        {"NO_COLOR", "if it is set and not empty, top shows no colours"},
        {"TERM", "the terminal that top draws on"},
};
const size_t n_variables = ARRAY_SIZE(variables);

bool variable_counts(const struct variable *variable, const struct verb *verb)
{
        const char *name = variable->name;

        if (strcmp(name, "NO_COLOR") == 0 || strcmp(name, "TERM") == 0)
                return strcmp(verb->name, "top") == 0;
        if (strcmp(name, "KVLEASE_ADMIN_SOCKET") == 0) /* verbs on files use no socket */
                return strncmp(verb->name, "trace ", strlen("trace ")) != 0 || !verb->offline;
        return true;
}

/* ---- options --------------------------------------------------------------------------------- */

static const struct {
        const char *verb;
        enum ctl_option option;
        const char *help;
} option_helps[] = {
        {"top", CTL_OPTION_COUNT, "so many looks, and no more"},
        {"top", CTL_OPTION_TENANT, "only what belongs to this tenant"},
        {"events", CTL_OPTION_COUNT, "the last N; with --follow, N and no more"},
        {"events", CTL_OPTION_TENANT, "only of this tenant, or for its leases"},
        {"warm", CTL_OPTION_ALL, "everything below the device"},
        {"warm", CTL_OPTION_OFF, "end the one that runs"},
        {"warm", CTL_OPTION_SESSION, "the pages of this session, as kvleasectl sessions shows it"},
        {"drain", CTL_OPTION_OFF, "grant again"},
        {"doctor", CTL_OPTION_ALL, "also show what is in order"},
        {"doctor", CTL_OPTION_BINARY, "this kvleased, not the one that runs or is installed"},
        {"trace hosts", CTL_OPTION_SIZE, "memory for pages on each host (\"64GiB\")"},
        {"trace hosts", CTL_OPTION_POLICIES, "the eviction policy of hosts, one (\"lru\")"},
        {"trace hosts", CTL_OPTION_PREFILL_RATE,
                "tokens a second in which a host computes what it neither finds nor loads"},
        {"trace record", CTL_OPTION_SIZE, "how large a file may be (\"64MiB\")"},
        {"recall", CTL_OPTION_SIZE, "at least so much (\"4GiB\"), not everything"},
        {"recall", CTL_OPTION_TIMEOUT, "how long clients have (\"90s\"), before it is quarantined"},
        {"restart", CTL_OPTION_FORCE, "also where something would be lost"},
};

const char *option_help_for(const struct verb *verb, enum ctl_option option)
{
        for (size_t i = 0; i < ARRAY_SIZE(option_helps); i++)
                if (option_helps[i].option == option &&
                        strcmp(option_helps[i].verb, verb->name) == 0)
                        return option_helps[i].help;
        return option_rows[option].help;
}
