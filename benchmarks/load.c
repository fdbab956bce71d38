/*
 * A load generator for one request, encoded beforehand.
 *
 * load HOST PORT CONNECTIONS IN_FLIGHT REQUESTS < request
 *
 * Sends the frame that it reads from standard input (its four bytes of length included) REQUESTS times in all, over
 * CONNECTIONS connections, with IN_FLIGHT requests outstanding on each, and reads the answers. Only the correlation id
 * is written anew. Prints one line of JSON: requests, seconds, bytes received, and percentiles of the latency in
 * microseconds, from the moment a request was handed to the kernel to the moment its answer was there whole.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAME = 8 << 20, RECEIVE = 1 << 20 };

struct connection {
    int fd;
    int outstanding;
    uint64_t *sent_at; /* a ring of IN_FLIGHT times */
    uint32_t head, tail;
    uint8_t *out; /* the frames that wait to be sent, and how far they are */
    size_t out_length, out_sent;
    uint8_t header[4]; /* the length of the answer being received */
    size_t header_have;
    uint64_t body_left;
    int wants_write;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint8_t frame[MAX_FRAME];
static size_t frame_length;
static uint8_t scratch[RECEIVE];
static uint64_t started, to_send, answered, received;
static uint32_t *latencies;
static int in_flight, epoll_fd;

static void push(struct connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) {
                if (!c->wants_write) {
                    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
                    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
                    c->wants_write = 1;
                }
                return;
            }
            die("send");
        }
        c->out_sent += (size_t)n;
    }
    c->out_sent = c->out_length = 0;
    if (c->wants_write) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
        c->wants_write = 0;
    }
}

static void fill(struct connection *c) {
    uint64_t now = now_ns();
    if (c->out_sent) { /* what is sent makes room: never more than IN_FLIGHT frames are in the buffer */
        c->out_length -= c->out_sent;
        memmove(c->out, c->out + c->out_sent, c->out_length);
        c->out_sent = 0;
    }
    while (c->outstanding < in_flight && started < to_send) {
        uint32_t id = htonl((uint32_t)started++);
        memcpy(frame + 8, &id, 4);
        memcpy(c->out + c->out_length, frame, frame_length);
        c->out_length += frame_length;
        c->sent_at[c->head++ % (uint32_t)in_flight] = now;
        c->outstanding++;
    }
    push(c);
}

static void drain(struct connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, scratch, sizeof scratch, 0);
        if (n < 0) {
            if (errno == EAGAIN) return;
            die("recv");
        }
        if (n == 0) {
            fprintf(stderr, "the server closed a connection\n");
            exit(1);
        }
        received += (uint64_t)n;
        size_t at = 0, end = (size_t)n;
        while (at < end) {
            if (c->body_left == 0) {
                while (c->header_have < 4 && at < end) c->header[c->header_have++] = scratch[at++];
                if (c->header_have < 4) break;
                uint32_t size;
                memcpy(&size, c->header, 4);
                c->body_left = ntohl(size);
                continue;
            }
            size_t take = end - at < c->body_left ? end - at : c->body_left;
            at += take;
            c->body_left -= take;
            if (c->body_left == 0) {
                c->header_have = 0;
                uint64_t took = now_ns() - c->sent_at[c->tail++ % (uint32_t)in_flight];
                latencies[answered++] = (uint32_t)(took / 100 > UINT32_MAX ? UINT32_MAX : took / 100);
                c->outstanding--;
            }
        }
        fill(c);
        if ((size_t)n < sizeof scratch) return;
    }
}

static double percentile(double p) {
    uint64_t index = (uint64_t)(p * (double)(answered - 1));
    return latencies[index] / 10.0;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: %s HOST PORT CONNECTIONS IN_FLIGHT REQUESTS < request\n", argv[0]);
        return 2;
    }
    int connections = atoi(argv[3]);
    in_flight = atoi(argv[4]);
    to_send = strtoull(argv[5], NULL, 10);
    frame_length = fread(frame, 1, sizeof frame, stdin);
    if (frame_length < 12 || connections < 1 || in_flight < 1 || to_send < 1) {
        fprintf(stderr, "no request on standard input, or a count that is not positive\n");
        return 2;
    }
    latencies = calloc(to_send, sizeof *latencies);
    epoll_fd = epoll_create1(0);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (!latencies || !all || epoll_fd < 0) die("setup");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) die("address");
    for (int i = 0; i < connections; i++) {
        struct connection *c = &all[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->sent_at = calloc((size_t)in_flight, sizeof *c->sent_at);
        c->out = malloc(frame_length * (size_t)in_flight);
        if (!c->sent_at || !c->out) die("memory");
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
    }
    uint64_t begin = now_ns();
    for (int i = 0; i < connections; i++) fill(&all[i]);
    struct epoll_event events[256];
    while (answered < to_send) {
        int count = epoll_wait(epoll_fd, events, 256, 10000);
        if (count == 0) {
            fprintf(stderr, "no answer for ten seconds after %llu answers\n", (unsigned long long)answered);
            return 1;
        }
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) drain(c);
        }
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    qsort(latencies, answered, sizeof *latencies, compare);
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes_received\": %llu, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           (unsigned long long)answered, seconds, (unsigned long long)received, percentile(0.5), percentile(0.99),
           percentile(0.999), percentile(1.0));
    return 0;
}
