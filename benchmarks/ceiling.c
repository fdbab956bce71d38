/*
 * A server that only acknowledges: the maximum of a client on this machine, when its server costs next to nothing.
 *
 *     ceiling LISTENING_SOCKET ANSWERS PIECES
 *
 * LISTENING_SOCKET is a file descriptor that the parent has bound. ANSWERS is a file of frames that ceiling.py has
 * encoded, one for each advertised API and version. This program only parses the frame and the header of the protocol,
 *
 *     request: size int32 | api key int16 | version int16 | correlation id int32 | client id string | body
 *     answer:  size int32 | correlation id int32 | body
 *
 * and the few positions of the bodies that ANSWERS contains. There is one topic with one partition.
 *
 * - Produce is received completely and discarded, except for the last batch if the whole request is small.
 * - Fetch, if the file PIECES exists (this is checked for every new connection): batches of the same size and number of
 *   records, repeatedly, as a partition without an end. The response to offset F is batch F / records, sent by sendfile;
 *   its base offset is written before it, so the offsets that a client sees always increase.
 * - Fetch, if PIECES does not exist: the batch that was produced last, if it is not below the requested offset;
 *   otherwise the request waits until a batch arrives or max_wait_ms have passed. This is an echo, for the time of a
 *   round trip.
 * - Any other request gets its prepared frame with the right correlation id; without one the connection is closed.
 *
 * ANSWERS is a sequence of entries, all numbers big-endian:
 *
 *     api key int16 | version int16 | flexible int8 | look_at int32 | wait_at int32 | write_at int32 | length int32 | frame
 *
 * look_at and wait_at count from the request's body, write_at from the frame's start:
 *
 *     Produce      look_at: the length of the records
 *     Fetch        look_at: fetch_offset; wait_at: max_wait_ms; write_at: where records and their length are missing
 *     ListOffsets  look_at: timestamp; write_at: the offset
 *
 * PIECES: size of a batch int32, records in it int32, then batches, each without its first eight bytes (the base
 * offset) and with three zero bytes after it, the end of a flexible response, which then need no separate system call.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, KEYS = 128, VERSIONS = 32 };
enum { RECEIVE = 1 << 20, HEAD = 1024, END = 3, BASE_OFFSET = 8, LAST_OFFSET_DELTA = 23, PIECES_HEADER = 8 };

struct answer {
    uint8_t *frame;
    size_t length;
    int flexible;
    size_t look_at, wait_at, write_at;
};

struct connection {
    int fd;
    uint32_t interest;
    uint8_t size[4]; /* the length of the request being received */
    size_t size_have;
    uint64_t body_left;
    uint8_t head[HEAD]; /* the beginning of the request, or the whole request */
    size_t head_have;
    uint8_t *out; /* encoded responses, and the number of sent bytes */
    size_t out_length, out_sent, out_room;
    off_t piece_at; /* followed by this part of the file */
    size_t piece_left;
    int held; /* a waiting Fetch, which is still in head */
    uint64_t deadline_ms;
    struct connection *next_held;
    uint8_t *rest; /* bytes after a pending Fetch: responses keep their order */
    size_t rest_length;
};

static struct answer answers[KEYS][VERSIONS];
static uint8_t scratch[RECEIVE];
static int epoll_fd, pieces_fd = -1;
static const char *pieces_path;
static struct stat pieces_seen;
static uint64_t piece_size, piece_records, pieces;
static uint8_t batch[HEAD]; /* the last small one */
static size_t batch_length;
static uint64_t batch_base, end_offset;
static struct connection *first_held;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint16_t read16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t read32(const uint8_t *p) { return (uint32_t)read16(p) << 16 | read16(p + 2); }
static uint64_t read64(const uint8_t *p) { return (uint64_t)read32(p) << 32 | read32(p + 4); }

static void write32(uint8_t *p, uint32_t value) {
    value = htonl(value);
    memcpy(p, &value, sizeof value);
}

static void write64(uint8_t *p, uint64_t value) {
    value = htobe64(value);
    memcpy(p, &value, sizeof value);
}

/* -- sending -- */

/* Allocate `length` bytes at the end of the responses, and return their address. */
static uint8_t *append(struct connection *c, size_t length) {
    if (c->out_length + length > c->out_room) {
        c->out_room = 2 * (c->out_length + length);
        c->out = realloc(c->out, c->out_room);
        if (!c->out) die("memory");
    }
    uint8_t *at = c->out + c->out_length;
    c->out_length += length;
    return at;
}

static void watch(struct connection *c, uint32_t interest) {
    if (c->interest == interest) return;
    struct epoll_event e = {.events = interest, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->interest = interest;
}

/* Whether the next request must wait: for a batch, or for a part of the file that is not sent yet. */
static int stopped(const struct connection *c) { return c->held || c->piece_left; }

/* Send the pending bytes. The event of a failed send handles the failure. */
static void flush(struct connection *c) {
    while (c->out_sent < c->out_length) {
        int more = c->piece_left ? MSG_MORE : 0;
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL | more);
        if (n < 0) return watch(c, EPOLLOUT);
        c->out_sent += (size_t)n;
    }
    c->out_length = c->out_sent = 0;
    while (c->piece_left) {
        ssize_t n = sendfile(c->fd, pieces_fd, &c->piece_at, c->piece_left);
        if (n <= 0) return watch(c, EPOLLOUT);
        c->piece_left -= (size_t)n;
    }
}

/* -- the requests -- */

static size_t body_at(const uint8_t *head, int flexible) {
    uint16_t client_id = read16(head + 8);
    return 10u + (client_id == UINT16_MAX ? 0u : client_id) + (flexible ? 1u : 0u);
}

/* The frame of a Fetch response up to the records: `length` bytes, of which `here` follow in memory. */
static uint8_t *append_fetch(struct connection *c, const struct answer *a, uint64_t length, uint64_t here) {
    uint8_t field[5];
    size_t field_length = 0;
    if (a->flexible) {
        uint64_t rest = length + 1;
        for (; rest >= 0x80; rest >>= 7) field[field_length++] = (uint8_t)(rest | 0x80);
        field[field_length++] = (uint8_t)rest;
    } else {
        write32(field, (uint32_t)length);
        field_length = 4;
    }
    uint8_t *at = append(c, a->write_at + field_length + here);
    memcpy(at, a->frame, a->write_at);
    write32(at, (uint32_t)(a->length - 4 + field_length + length));
    memcpy(at + 4, c->head + 4, 4);
    memcpy(at + a->write_at, field, field_length);
    return at + a->write_at + field_length;
}

static void answer_fetch(struct connection *c, const struct answer *a, uint64_t fetch_offset) {
    size_t end = a->length - a->write_at;
    if (pieces) {
        uint64_t number = fetch_offset / piece_records;
        write64(append_fetch(c, a, piece_size, BASE_OFFSET), number * piece_records);
        uint64_t stride = piece_size - BASE_OFFSET + END;
        c->piece_at = (off_t)(PIECES_HEADER + number % pieces * stride);
        c->piece_left = piece_size - BASE_OFFSET + end;
        return;
    }
    uint64_t length = fetch_offset < end_offset ? batch_length : 0;
    uint8_t *at = append_fetch(c, a, length, length + end);
    if (length) {
        memcpy(at, batch, length);
        write64(at, batch_base);
    }
    memset(at + length, 0, end);
}

static const struct answer *fetch_answer(const struct connection *c) { return &answers[FETCH][read16(c->head + 2)]; }

static uint64_t fetch_offset_of(const struct connection *c) {
    const struct answer *a = fetch_answer(c);
    size_t at = body_at(c->head, a->flexible) + a->look_at;
    return at + 8 <= c->head_have ? read64(c->head + at) : end_offset;
}

static void serve_fetch(struct connection *c, const struct answer *a) {
    uint64_t fetch_offset = fetch_offset_of(c);
    uint32_t wait = read32(c->head + body_at(c->head, a->flexible) + a->wait_at);
    if (pieces || fetch_offset < end_offset || wait == 0) return answer_fetch(c, a, fetch_offset);
    c->held = 1;
    c->deadline_ms = now_ms() + wait;
    c->next_held = first_held;
    first_held = c;
}

/* Store the batch of a completely received request. */
static void keep_batch(const struct connection *c, const struct answer *a) {
    size_t at = body_at(c->head, a->flexible) + a->look_at;
    uint64_t length = 0;
    if (a->flexible) {
        for (unsigned shift = 0; at < c->head_have && shift < 35; shift += 7) {
            length |= (uint64_t)(c->head[at] & 0x7f) << shift;
            if (c->head[at++] < 0x80) break;
        }
        length--;
    } else {
        length = read32(c->head + at);
        at += 4;
    }
    if (at + length > c->head_have || length < LAST_OFFSET_DELTA + 4) return;
    memcpy(batch, c->head + at, length);
    batch_length = length;
    batch_base = end_offset;
    end_offset += read32(batch + LAST_OFFSET_DELTA) + 1;
}

static int serve(struct connection *c, uint64_t size) {
    uint16_t key = read16(c->head), version = read16(c->head + 2);
    const struct answer *a = key < KEYS && version < VERSIONS ? &answers[key][version] : NULL;
    if (!a || !a->frame || c->head_have < 10) {
        fprintf(stderr, "there is no answer to API %u in version %u\n", key, version);
        return 0;
    }
    if (key == FETCH) {
        serve_fetch(c, a);
        return 1;
    }
    uint8_t *at = append(c, a->length);
    memcpy(at, a->frame, a->length);
    memcpy(at + 4, c->head + 4, 4);
    if (key == PRODUCE && size == c->head_have) keep_batch(c, a);
    if (key == LIST_OFFSETS) {
        int64_t timestamp = (int64_t)read64(c->head + body_at(c->head, a->flexible) + a->look_at);
        write64(at + a->write_at, timestamp == -1 ? end_offset : 0);
    }
    return 1;
}

/* -- receiving -- */

/* Serve requests from `data` while possible; returns the number of used bytes, or -1 to close. */
static ssize_t take(struct connection *c, const uint8_t *data, size_t length) {
    size_t at = 0;
    while (at < length && !stopped(c)) {
        if (c->body_left == 0) {
            while (c->size_have < 4 && at < length) c->size[c->size_have++] = data[at++];
            if (c->size_have < 4) break;
            c->body_left = read32(c->size);
            c->head_have = 0;
            continue;
        }
        size_t piece = length - at < c->body_left ? length - at : c->body_left;
        size_t keep = piece < HEAD - c->head_have ? piece : HEAD - c->head_have;
        memcpy(c->head + c->head_have, data + at, keep);
        c->head_have += keep;
        at += piece;
        c->body_left -= piece;
        if (c->body_left == 0) {
            c->size_have = 0;
            if (!serve(c, read32(c->size))) return -1;
        }
    }
    return (ssize_t)at;
}

static void close_connection(struct connection *c) {
    for (struct connection **at = &first_held; *at; at = &(*at)->next_held)
        if (*at == c) {
            *at = c->next_held;
            break;
        }
    close(c->fd);
    free(c->out);
    free(c->rest);
    free(c);
}

/* Store bytes that must not be parsed yet. */
static void keep_rest(struct connection *c, const uint8_t *data, size_t length) {
    uint8_t *rest = NULL;
    if (length) {
        if (!(rest = malloc(length))) die("memory");
        memcpy(rest, data, length);
    }
    free(c->rest);
    c->rest = rest;
    c->rest_length = length;
}

/* After a send: continue with the stored bytes, then with the socket. Returns 0 to close. */
static int resume(struct connection *c) {
    flush(c);
    while (!stopped(c) && c->rest_length) {
        ssize_t used = take(c, c->rest, c->rest_length);
        if (used < 0) return 0;
        keep_rest(c, c->rest + used, c->rest_length - (size_t)used);
        flush(c);
    }
    if (c->out_length == 0 && !stopped(c)) watch(c, EPOLLIN);
    return 1;
}

static void readable(struct connection *c) {
    if (stopped(c)) return watch(c, 0); /* checked again by resume */
    ssize_t n = recv(c->fd, scratch, sizeof scratch, 0);
    if (n < 0 && errno == EAGAIN) return;
    ssize_t used = n > 0 ? take(c, scratch, (size_t)n) : -1;
    if (used < 0) return close_connection(c);
    if (used < n) keep_rest(c, scratch + used, (size_t)(n - used));
    flush(c);
    if (c->rest_length && !stopped(c) && !resume(c)) close_connection(c);
}

/* Respond to fetches whose batch has arrived, or whose time has passed. */
static void release_held(void) {
    uint64_t now = now_ms();
    for (struct connection **at = &first_held; *at;) {
        struct connection *c = *at;
        if (fetch_offset_of(c) >= end_offset && now < c->deadline_ms) {
            at = &c->next_held;
            continue;
        }
        *at = c->next_held;
        c->held = 0;
        answer_fetch(c, fetch_answer(c), fetch_offset_of(c));
        if (!resume(c)) shutdown(c->fd, SHUT_RDWR); /* its event will close it */
    }
}

static int wait_ms(void) {
    if (!first_held) return -1;
    uint64_t now = now_ms(), wait = UINT32_MAX / 4;
    for (struct connection *c = first_held; c; c = c->next_held) {
        uint64_t left = c->deadline_ms > now ? c->deadline_ms - now : 0;
        if (left < wait) wait = left;
    }
    return (int)wait;
}

/* -- its life -- */

static void look_for_pieces(void) {
    struct stat now;
    memset(&now, 0, sizeof now);
    stat(pieces_path, &now);
    if (now.st_ino == pieces_seen.st_ino && now.st_mtim.tv_nsec == pieces_seen.st_mtim.tv_nsec) return;
    pieces_seen = now;
    if (pieces_fd >= 0) close(pieces_fd);
    pieces = 0;
    pieces_fd = open(pieces_path, O_RDONLY);
    uint8_t header[PIECES_HEADER];
    if (pieces_fd < 0 || read(pieces_fd, header, sizeof header) != sizeof header) return;
    piece_size = read32(header);
    piece_records = read32(header + 4);
    pieces = ((uint64_t)now.st_size - PIECES_HEADER) / (piece_size - BASE_OFFSET + END);
}

static void accept_all(int listening) {
    for (;;) {
        int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        look_for_pieces();
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4); /* never paces, like Moldau's local connections */
        struct connection *c = calloc(1, sizeof *c);
        if (!c) die("memory");
        c->fd = fd;
        c->interest = EPOLLIN;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
    }
}

static void load_answers(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    uint8_t entry[21];
    while (fread(entry, sizeof entry, 1, file) == 1) {
        struct answer *a = &answers[read16(entry) % KEYS][read16(entry + 2) % VERSIONS];
        a->flexible = entry[4];
        a->look_at = read32(entry + 5);
        a->wait_at = read32(entry + 9);
        a->write_at = read32(entry + 13);
        a->length = read32(entry + 17);
        a->frame = malloc(a->length);
        if (!a->frame || fread(a->frame, a->length, 1, file) != 1) die("the file of answers is cut");
    }
    fclose(file);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s LISTENING_SOCKET ANSWERS PIECES\n", argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a client that disconnects in the middle of a response */
    int listening = atoi(argv[1]);
    load_answers(argv[2]);
    pieces_path = argv[3];
    epoll_fd = epoll_create1(0);
    fcntl(listening, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listening, &e) < 0) die("setup");
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, 256, wait_ms());
        if (count < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == NULL)
                accept_all(listening);
            else if (events[i].events & (EPOLLHUP | EPOLLERR))
                close_connection(c);
            else if (events[i].events & EPOLLOUT && !resume(c))
                close_connection(c);
            else if (events[i].events & EPOLLIN)
                readable(c);
        }
        if (first_held) release_held();
    }
}
