/*
 * A load generator for many small requests with known responses: heartbeats, commits.
 *
 *     group_load [--connections N] (--requests N | --seconds S) HOST PORT < PAIRS
 *
 *     --connections N   each with one request outstanding (1)
 *     --requests N      how many requests in all, or
 *     --seconds S       for how long; pending responses are then waited for
 *
 * PAIRS are frames, each with its four bytes of length: alternately a request and its expected response. Pair K belongs
 * to connection K modulo N, which sends its own pairs repeatedly, the next request after the response to the previous
 * one. Only the correlation id is changed, and only it may differ in a response. Any other response than the expected
 * one ends the program, since a server that quickly rejects requests would look fast. An empty response (length 0)
 * stands for any.
 *
 * Requests are small: each must fit into the socket's buffer, or the program ends.
 *
 * Prints what load.c prints: requests, seconds (first request to last response), bytes_sent, bytes_received, and
 * p50_us, p99_us, p999_us, max_us from the moment a request was passed to the kernel to the moment its response was
 * complete. Exits with 1 if a response is wrong, a connection fails, or there is no response for 30 seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include "generator.h"

enum { MAX_ANSWER = 1 << 16, SHOWN_BYTES = 64 };

struct pair {
    struct frame request, answer;
};

struct connection {
    int fd;
    size_t turn; /* the pair whose response is pending, or was last */
    uint64_t began_ns;
    uint8_t received[MAX_ANSWER];
    size_t have;
};

static struct pair *pairs;
static size_t pairs_count;
static struct connection *all;
static uint64_t connections = 1, to_start = UINT64_MAX, end_ns = UINT64_MAX;
static uint64_t started, answered, sent_bytes, received_bytes;

static void start_next(struct connection *c) {
    uint64_t now = now_ns();
    if (started == to_start || now >= end_ns) return;
    c->turn += connections;
    if (c->turn >= pairs_count) c->turn %= connections;
    struct frame *request = &pairs[c->turn].request;
    uint32_t id = htonl((uint32_t)started++);
    memcpy(request->bytes + 8, &id, 4);
    c->began_ns = now;
    ssize_t n = send(c->fd, request->bytes, request->length, MSG_NOSIGNAL);
    if (n < 0) die("send");
    if ((size_t)n != request->length) {
        fprintf(stderr, "a request of %zu bytes does not fit into the socket's buffer\n", request->length);
        exit(1);
    }
    sent_bytes += (uint64_t)n;
}

static void show(const char *what, const uint8_t *bytes, size_t length) {
    fprintf(stderr, "%s (%zu bytes):", what, length);
    for (size_t i = 0; i < length && i < SHOWN_BYTES; i++) fprintf(stderr, " %02x", bytes[i]);
    fprintf(stderr, length > SHOWN_BYTES ? " ...\n" : "\n");
}

static void check(const struct connection *c, size_t length) {
    const struct frame *expected = &pairs[c->turn].answer;
    if (expected->length == 4) return;
    if (length == expected->length && !memcmp(c->received + 8, expected->bytes + 8, length - 8)) return;
    fprintf(stderr, "answer %llu is another one than was expected\n", (unsigned long long)answered);
    show("expected", expected->bytes, expected->length);
    show("received", c->received, length);
    exit(1);
}

static void receive(struct connection *c) {
    ssize_t n = recv(c->fd, c->received + c->have, sizeof c->received - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    c->have += received_some(n);
    if (c->have < 4) return;
    size_t length = whole_length(c->received);
    if (length > sizeof c->received || length < 8 || c->have > length) {
        fprintf(stderr, "an answer of %zu bytes\n", length);
        exit(1);
    }
    if (c->have < length) return;
    c->have = 0;
    received_bytes += length;
    note_latency(c->began_ns);
    answered++;
    check(c, length);
    start_next(c);
}

static void connect_all(const char *host, const char *port, int epoll_fd) {
    struct sockaddr_in address = address_of(host, port);
    for (uint64_t i = 0; i < connections; i++) {
        struct connection *c = &all[i];
        c->turn = i + pairs_count / connections * connections; /* so that the next one is its first */
        c->fd = connect_to(&address);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch_input(epoll_fd, c->fd, c);
    }
}

static void usage(const char *program, const char *complaint) {
    fprintf(stderr, "%s\nusage: %s [--connections N] (--requests N | --seconds S) HOST PORT < PAIRS\n", complaint, program);
    exit(2);
}

static void read_pairs(const char *program) {
    size_t room = 0;
    for (struct pair pair; read_frame(&pair.request); pairs[pairs_count++] = pair) {
        if (!read_frame(&pair.answer)) usage(program, "a request without its answer");
        if (pair.request.length < 12) usage(program, "a request that is too short");
        if (pairs_count < room) continue;
        room = room ? 2 * room : 1024;
        pairs = realloc(pairs, room * sizeof *pairs);
        if (!pairs) die("memory");
    }
    if (pairs_count < connections) usage(program, "fewer requests than connections on standard input");
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"connections", required_argument, NULL, 'c'},
        {"requests", required_argument, NULL, 'n'},
        {"seconds", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    double seconds = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (option) {
            case 'c': connections = strtoull(optarg, NULL, 10); break;
            case 'n': to_start = strtoull(optarg, NULL, 10); break;
            case 's': seconds = strtod(optarg, NULL); break;
            default: usage(argv[0], "an unknown option");
        }
    if (argc - optind != 2) usage(argv[0], "HOST and PORT are needed");
    if ((seconds > 0) == (to_start != UINT64_MAX)) usage(argv[0], "either --requests or --seconds");
    if (connections < 1 || to_start < 1) usage(argv[0], "a count that is not positive");
    read_pairs(argv[0]);
    all = calloc(connections, sizeof *all);
    int epoll_fd = epoll_create1(0);
    if (!all || epoll_fd < 0) die("setup");
    connect_all(argv[optind], argv[optind + 1], epoll_fd);
    uint64_t begin_ns = now_ns();
    if (seconds > 0) end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    for (uint64_t i = 0; i < connections; i++) start_next(&all[i]);
    struct epoll_event events[256];
    while (answered < started) {
        int count = epoll_wait(epoll_fd, events, 256, PATIENCE_MS);
        if (count == 0) {
            fprintf(stderr, "no answer for %d s after %llu answers\n", PATIENCE_MS / 1000, (unsigned long long)answered);
            return 1;
        }
        for (int i = 0; i < count; i++) receive(events[i].data.ptr);
    }
    uint64_t took_ns = now_ns() - begin_ns;
    printf("{\"requests\": %llu, ", (unsigned long long)answered);
    print_end(took_ns, sent_bytes, received_bytes);
    return 0;
}
