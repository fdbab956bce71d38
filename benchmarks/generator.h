/*
 * Shared by the load generators: a clock, connections, frames on standard input, latencies and their output.
 */
#ifndef GENERATOR_H
#define GENERATOR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { PATIENCE_MS = 30000 }; /* without any response */

struct frame {
    uint8_t *bytes; /* including the length */
    size_t length;
};

static uint32_t *latencies; /* in tenths of microseconds */
static size_t latencies_count, latencies_room;

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

static inline struct sockaddr_in address_of(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("address");
    return address;
}

static inline int connect_to(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Register for events of received data, with ``whose``. */
static inline void watch_input(int epoll_fd, int fd, void *whose) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = whose};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
}

/* Check the result of recv, which must not be the end of the stream. */
static inline uint64_t received_some(ssize_t n) {
    if (n < 0) die("recv");
    if (n == 0) {
        fprintf(stderr, "the server closed a connection\n");
        exit(1);
    }
    return (uint64_t)n;
}

/* The size of the frame that begins here, including its four bytes of length. */
static inline size_t whole_length(const uint8_t *bytes) {
    uint32_t size;
    memcpy(&size, bytes, 4);
    return 4 + (size_t)ntohl(size);
}

/* The next frame of standard input; 0 if there is none, or an incomplete one. */
static inline int read_frame(struct frame *frame) {
    uint8_t size[4];
    if (fread(size, 1, sizeof size, stdin) < sizeof size) return 0;
    frame->length = whole_length(size);
    frame->bytes = malloc(frame->length);
    if (!frame->bytes) die("memory");
    memcpy(frame->bytes, size, sizeof size);
    return fread(frame->bytes + 4, 1, frame->length - 4, stdin) == frame->length - 4;
}

static inline void note_latency(uint64_t began_ns) {
    if (latencies_count == latencies_room) {
        latencies_room = latencies_room ? 2 * latencies_room : 1 << 20;
        latencies = realloc(latencies, latencies_room * sizeof *latencies);
        if (!latencies) die("memory");
    }
    uint64_t took = (now_ns() - began_ns) / 100;
    latencies[latencies_count++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

static inline int compare_latencies(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static inline double percentile(double p) { return latencies[(uint64_t)(p * (double)(latencies_count - 1))] / 10.0; }

/* The end of the line of JSON that the caller has begun. */
static inline void print_end(uint64_t took_ns, uint64_t bytes_sent, uint64_t bytes_received) {
    qsort(latencies, latencies_count, sizeof *latencies, compare_latencies);
    printf("\"seconds\": %.6f, \"bytes_sent\": %llu, \"bytes_received\": %llu, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           (double)took_ns / 1e9, (unsigned long long)bytes_sent, (unsigned long long)bytes_received,
           percentile(0.5), percentile(0.99), percentile(0.999), percentile(1.0));
}

#endif
