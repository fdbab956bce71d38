/*
 * A load generator for one request, encoded in advance, so that no client library is measured.
 *
 *     load [OPTION...] HOST PORT < REQUEST
 *
 *     --connections N   busy connections (1)
 *     --in-flight N     maximum pending requests on each (1)
 *     --requests N      how many requests in all, or
 *     --seconds S       for how long; pending responses are then waited for
 *     --rate R          an open loop: R requests a second at fixed times, whatever the latency of the responses
 *     --idle N          idle connections that are opened first (0)
 *
 * REQUEST is a frame, including its four bytes of length. It is sent repeatedly with a new correlation id. Every
 * connection has a ring of IN-FLIGHT copies, so a request costs twelve changed bytes and a send, whatever its size.
 * Responses are received into a buffer, as by a client, and only their length is parsed: the caller must check that
 * they are good.
 *
 * Without a rate a connection sends its next request as soon as it has a response. The latency is then from the moment
 * a request was passed to the kernel to the moment its response was complete. With a rate each request has a start
 * time, and is sent on the next connection with a free place, or waits for one. The latency is from the start time: a
 * server that stalls is charged for all requests that are due in the meantime (no coordinated omission).
 *
 * Prints one line of JSON: requests, seconds (first request to last response), bytes_sent, bytes_received, and p50_us,
 * p99_us, p999_us, max_us of the latency. Exits with 1 if a connection fails, or if there is no response for 30
 * seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "generator.h"

enum { MAX_FRAME = 8 << 20, RECEIVE = 1 << 20 };

struct connection {
    int fd;
    int wants_write;
    uint64_t started, answered; /* requests; the difference is pending */
    uint64_t sent;              /* bytes, of started * frame_length */
    uint8_t *ring;              /* in_flight copies of the frame */
    uint64_t *began;            /* when each of them began */
    uint8_t size[4];            /* the length of the response being received */
    size_t size_have;
    uint64_t body_left;
};

static uint8_t frame[MAX_FRAME];
static size_t frame_length;
static uint8_t scratch[RECEIVE];
static struct connection *all;
static uint64_t connections = 1, in_flight = 1, idle, to_start = UINT64_MAX;
static double rate;
static uint64_t begin_ns, end_ns = UINT64_MAX, started, answered, received;
static uint64_t next_connection; /* open loop: the next connection */
static int epoll_fd, timer_fd = -1;

static void watch(struct connection *c, int write) {
    if (c->wants_write == write) return;
    struct epoll_event e = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e) < 0) die("epoll_ctl");
    c->wants_write = write;
}

/* Send started requests; the rest when the socket is writable again. */
static void push(struct connection *c) {
    uint64_t ring_length = in_flight * frame_length, left;
    while ((left = c->started * frame_length - c->sent) > 0) {
        uint64_t at = c->sent % ring_length;
        uint64_t piece = left < ring_length - at ? left : ring_length - at;
        ssize_t n = send(c->fd, c->ring + at, piece, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, 1);
            return;
        }
        if (n < 0) die("send");
        c->sent += (uint64_t)n;
    }
    watch(c, 0);
}

/* Responses have the order of the requests, so a free place in the ring has also been sent. */
static void start(struct connection *c, uint64_t at_ns) {
    uint64_t place = c->started++ % in_flight;
    uint32_t id = htonl((uint32_t)started++);
    memcpy(c->ring + place * frame_length + 8, &id, 4);
    c->began[place] = at_ns;
}

static void fill(struct connection *c) {
    uint64_t now = now_ns();
    while (c->started - c->answered < in_flight && started < to_start && now < end_ns) start(c, now);
    push(c);
}

static uint64_t due_ns(uint64_t request) { return begin_ns + (uint64_t)((double)request * 1e9 / rate); }

/* Open loop: start all due requests that find a place, and set the timer for the next one. */
static void start_due(void) {
    uint64_t now = now_ns(), tried = 0;
    while (started < to_start && due_ns(started) <= now) {
        struct connection *c = &all[next_connection++ % connections];
        if (c->started - c->answered < in_flight) {
            start(c, due_ns(started));
            push(c);
            tried = 0;
        } else if (++tried == connections) {
            return; /* all are busy: the next response calls this again */
        }
    }
    if (started < to_start) {
        uint64_t next = due_ns(started);
        struct itimerspec at = {.it_value = {(time_t)(next / 1000000000ull), (long)(next % 1000000000ull)}};
        if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL) < 0) die("timerfd_settime");
    }
}

static void note_answer(struct connection *c) {
    note_latency(c->began[c->answered++ % in_flight]);
    answered++;
}

static void drain(struct connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, scratch, sizeof scratch, 0);
        if (n < 0 && errno == EAGAIN) return;
        received += received_some(n);
        size_t at = 0, end = (size_t)n;
        while (at < end) {
            if (c->body_left == 0) {
                while (c->size_have < 4 && at < end) c->size[c->size_have++] = scratch[at++];
                if (c->size_have < 4) break;
                uint32_t size;
                memcpy(&size, c->size, 4);
                c->body_left = ntohl(size);
                c->size_have = 0;
                continue;
            }
            size_t take = end - at < c->body_left ? end - at : c->body_left;
            at += take;
            c->body_left -= take;
            if (c->body_left == 0) note_answer(c);
        }
        if (rate > 0)
            start_due();
        else
            fill(c);
        if ((size_t)n < sizeof scratch) return;
    }
}

static void connect_all(const char *host, const char *port) {
    struct sockaddr_in address = address_of(host, port);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (uint64_t i = 0; i < idle + connections; i++) {
        int fd = connect_to(&address);
        if (i < idle) continue; /* held until the end of the process */
        struct connection *c = &all[i - idle];
        c->fd = fd;
        fcntl(fd, F_SETFL, O_NONBLOCK);
        c->began = calloc(in_flight, sizeof *c->began);
        c->ring = malloc(frame_length * in_flight);
        if (!c->began || !c->ring) die("memory");
        for (uint64_t k = 0; k < in_flight; k++) memcpy(c->ring + k * frame_length, frame, frame_length);
        watch_input(epoll_fd, fd, c);
    }
}

static int finished(void) {
    if (answered < started) return 0;
    return started == to_start || (rate <= 0 && now_ns() >= end_ns);
}

static void usage(const char *program, const char *complaint) {
    fprintf(stderr,
            "%s\nusage: %s [--connections N] [--in-flight N] [--rate R] [--idle N] (--requests N | --seconds S) "
            "HOST PORT < REQUEST\n",
            complaint, program);
    exit(2);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"connections", required_argument, NULL, 'c'}, {"in-flight", required_argument, NULL, 'f'},
        {"requests", required_argument, NULL, 'n'},    {"seconds", required_argument, NULL, 's'},
        {"rate", required_argument, NULL, 'r'},        {"idle", required_argument, NULL, 'i'},
        {NULL, 0, NULL, 0},
    };
    double seconds = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (option) {
            case 'c': connections = strtoull(optarg, NULL, 10); break;
            case 'f': in_flight = strtoull(optarg, NULL, 10); break;
            case 'n': to_start = strtoull(optarg, NULL, 10); break;
            case 's': seconds = strtod(optarg, NULL); break;
            case 'r': rate = strtod(optarg, NULL); break;
            case 'i': idle = strtoull(optarg, NULL, 10); break;
            default: usage(argv[0], "an unknown option");
        }
    if (argc - optind != 2) usage(argv[0], "HOST and PORT are needed");
    if ((seconds > 0) == (to_start != UINT64_MAX)) usage(argv[0], "either --requests or --seconds");
    frame_length = fread(frame, 1, sizeof frame, stdin);
    if (frame_length < 12) usage(argv[0], "no request on standard input");
    if (connections < 1 || in_flight < 1 || to_start < 1 || rate < 0) usage(argv[0], "a count that is not positive");
    if (rate > 0 && seconds > 0 && (to_start = (uint64_t)(rate * seconds)) < 1) usage(argv[0], "too slow for that time");

    all = calloc(connections, sizeof *all);
    epoll_fd = epoll_create1(0);
    if (!all || epoll_fd < 0) die("setup");
    connect_all(argv[optind], argv[optind + 1]);
    begin_ns = now_ns();
    if (rate > 0) {
        timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        if (timer_fd < 0) die("timer");
        watch_input(epoll_fd, timer_fd, NULL);
        start_due();
    } else {
        if (seconds > 0) end_ns = begin_ns + (uint64_t)(seconds * 1e9);
        for (uint64_t i = 0; i < connections; i++) fill(&all[i]);
    }
    struct epoll_event events[256];
    while (!finished()) {
        int count = epoll_wait(epoll_fd, events, 256, PATIENCE_MS);
        if (count == 0 && answered < started) {
            fprintf(stderr, "no answer for %d s after %llu answers\n", PATIENCE_MS / 1000, (unsigned long long)answered);
            return 1;
        }
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == NULL) {
                uint64_t expirations;
                if (read(timer_fd, &expirations, sizeof expirations) > 0) start_due();
                continue;
            }
            if (events[i].events & EPOLLOUT) push(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) drain(c);
        }
    }
    uint64_t took_ns = now_ns() - begin_ns;
    printf("{\"requests\": %llu, ", (unsigned long long)answered);
    print_end(took_ns, answered * frame_length, received);
    return 0;
}
