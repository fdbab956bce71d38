/*
 * A load generator for transactions of one batch each, as sent by a client with transactions version 2 (KIP-890), so
 * that no client library is measured.
 *
 *     transaction_load --batch BYTES [OPTION...] (--transactions N | --seconds S) HOST PORT < PRODUCERS
 *
 *     --batch BYTES      the size of the record batch in each Produce request
 *     --transactions N   how many in all, or
 *     --seconds S        for how long; open transactions are then ended
 *     --abort-every N    of each producer's transactions; the others are committed (0: all of them)
 *     --retry-ms MS      the delay before a rejected request is retried (20)
 *
 * PRODUCERS are frames, each with its four bytes of length: for each producer a Produce request, version 12, with one
 * batch for one partition, and an EndTxn request, version 5. Each producer has its own connection and sends the two
 * alternately, the next request after the response to the previous one. The response to EndTxn contains the producer id
 * and epoch of the next transaction. They are written into the batch, whose CRC is then recomputed, and into EndTxn.
 * The sequence number is that of the given batch, 0, in every transaction, since each has its own epoch.
 *
 * A request that fails with CONCURRENT_TRANSACTIONS, since the previous transaction has not ended on all partitions, is
 * retried after a delay, as by clients; any other error ends the program.
 *
 * Prints one line of JSON: transactions, aborted (of them), retries, seconds (first request to last response),
 * bytes_sent, bytes_received, and p50_us, p99_us, p999_us, max_us from the moment the Produce request was first passed
 * to the kernel to the moment the response to EndTxn was complete. Exits with 1 if a response is an error or malformed,
 * a connection fails, or there is no response for 30 seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <unistd.h>

#include "generator.h"

enum { MAX_ANSWER = 1 << 12, CONCURRENT_TRANSACTIONS = 51 };

/* Offsets in a record batch. The CRC covers the bytes from the attributes on. */
enum { BATCH_CRC = 17, BATCH_ATTRIBUTES = 21, BATCH_PRODUCER_ID = 43, BATCH_PRODUCER_EPOCH = 51, BATCH_HEADER = 61 };

/* After the batch: the empty tagged fields of its partition, its topic, the request. */
enum { PRODUCE_TAIL = 3 };

/* Counted from the end of an EndTxn request: producer id, epoch, committed, the tagged fields. */
enum { END_PRODUCER_ID = 12, END_PRODUCER_EPOCH = 4, END_COMMITTED = 2 };

/* The beginning of responses: length, correlation id, tagged fields of the header. */
enum { ANSWER_BODY = 9, END_ERROR = ANSWER_BODY + 4, END_NEXT_ID = END_ERROR + 2, END_NEXT_EPOCH = END_NEXT_ID + 8,
       END_ANSWER = END_NEXT_EPOCH + 3 };

struct producer {
    struct frame produce, end;
    int fd, is_ending;
    uint64_t turn; /* the number of its transaction, from 1 */
    uint64_t began_ns, retry_ns; /* retry_ns: when to retry; 0 while a response is pending, or there is no more to do */
    uint8_t received[MAX_ANSWER];
    size_t have;
};

static struct producer *all;
static size_t producers_count, batch_bytes;
static uint64_t to_start = UINT64_MAX, end_ns = UINT64_MAX, abort_every, retry_after_ns = 20000000;
static uint64_t started, ended, aborted, retries, waiting, sent_bytes, received_bytes;
static uint32_t crc_table[256];

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc_table[i] = crc;
    }
}

static uint32_t crc32c(const uint8_t *bytes, size_t length) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) crc = crc >> 8 ^ crc_table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

static uint16_t int16_at(const uint8_t *bytes) { return (uint16_t)(bytes[0] << 8 | bytes[1]); }

static void send_frame(struct producer *p) {
    struct frame *frame = p->is_ending ? &p->end : &p->produce;
    for (size_t sent = 0; sent < frame->length;) {
        ssize_t n = send(p->fd, frame->bytes + sent, frame->length - sent, MSG_NOSIGNAL);
        if (n < 0) die("send");
        sent += (size_t)n;
    }
    sent_bytes += frame->length;
}

static void begin(struct producer *p) {
    p->began_ns = now_ns();
    if (started == to_start || p->began_ns >= end_ns) return;
    started++;
    p->turn++;
    p->is_ending = 0;
    int aborts = abort_every && p->turn % abort_every == 0;
    aborted += (uint64_t)aborts;
    p->end.bytes[p->end.length - END_COMMITTED] = !aborts;
    send_frame(p);
}

/* Write the producer id and epoch of the EndTxn response into both requests. */
static void go_on_as(struct producer *p, const uint8_t *id, const uint8_t *epoch) {
    uint8_t *batch = p->produce.bytes + p->produce.length - PRODUCE_TAIL - batch_bytes;
    memcpy(batch + BATCH_PRODUCER_ID, id, 8);
    memcpy(batch + BATCH_PRODUCER_EPOCH, epoch, 2);
    uint32_t crc = htonl(crc32c(batch + BATCH_ATTRIBUTES, batch_bytes - BATCH_ATTRIBUTES));
    memcpy(batch + BATCH_CRC, &crc, 4);
    memcpy(p->end.bytes + p->end.length - END_PRODUCER_ID, id, 8);
    memcpy(p->end.bytes + p->end.length - END_PRODUCER_EPOCH, epoch, 2);
}

/* The response's error code: for Produce after the topic's name, which is short, and the partition's number. */
static uint16_t error_of(const struct producer *p, size_t length) {
    size_t at = END_ERROR;
    if (!p->is_ending) {
        size_t name = p->received[ANSWER_BODY + 1];
        at = ANSWER_BODY + 2 + (name ? name - 1 : 0) + 1 + 4;
        if (name > 127 || p->received[ANSWER_BODY] != 2) at = MAX_ANSWER; /* one topic */
    }
    if (at + 2 > length || (p->is_ending && length != END_ANSWER)) {
        fprintf(stderr, "an answer of %zu bytes that is none of %s\n", length, p->is_ending ? "EndTxn" : "Produce");
        exit(1);
    }
    return int16_at(p->received + at);
}

static void answered(struct producer *p, size_t length) {
    uint16_t error = error_of(p, length);
    if (error == CONCURRENT_TRANSACTIONS) {
        p->retry_ns = now_ns() + retry_after_ns;
        waiting++;
    } else if (error) {
        fprintf(stderr, "transaction %llu: %s is answered with error %d\n", (unsigned long long)ended,
                p->is_ending ? "EndTxn" : "Produce", (int16_t)error);
        exit(1);
    } else if (!p->is_ending) {
        p->is_ending = 1;
        send_frame(p);
    } else {
        note_latency(p->began_ns);
        ended++;
        go_on_as(p, p->received + END_NEXT_ID, p->received + END_NEXT_EPOCH);
        begin(p);
    }
}

static void receive(struct producer *p) {
    ssize_t n = recv(p->fd, p->received + p->have, sizeof p->received - p->have, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    p->have += received_some(n);
    if (p->have < 4) return;
    size_t length = whole_length(p->received);
    if (length > sizeof p->received || length < ANSWER_BODY + 2 || p->have > length) {
        fprintf(stderr, "an answer of %zu bytes\n", length);
        exit(1);
    }
    if (p->have < length) return;
    p->have = 0;
    received_bytes += length;
    answered(p, length);
}

/* Retry due requests; returns the milliseconds until the next one is due, or the time limit. */
static int send_again(void) {
    if (!waiting) return PATIENCE_MS;
    uint64_t now = now_ns(), first = UINT64_MAX;
    for (size_t i = 0; i < producers_count; i++) {
        struct producer *p = &all[i];
        if (!p->retry_ns) continue;
        if (p->retry_ns <= now) {
            p->retry_ns = 0;
            waiting--;
            retries++;
            send_frame(p);
        } else if (p->retry_ns < first) {
            first = p->retry_ns;
        }
    }
    return first == UINT64_MAX ? PATIENCE_MS : (int)((first - now + 999999) / 1000000);
}

static void connect_all(const char *host, const char *port, int epoll_fd) {
    struct sockaddr_in address = address_of(host, port);
    for (size_t i = 0; i < producers_count; i++) {
        struct producer *p = &all[i];
        p->fd = connect_to(&address);
        watch_input(epoll_fd, p->fd, p);
    }
}

static void usage(const char *program, const char *complaint) {
    fprintf(stderr,
            "%s\nusage: %s --batch BYTES [--abort-every N] [--retry-ms MS] (--transactions N | --seconds S) HOST PORT "
            "< PRODUCERS\n",
            complaint, program);
    exit(2);
}

static void read_producers(const char *program) {
    size_t room = 0;
    for (struct producer p = {0}; read_frame(&p.produce); all[producers_count++] = p) {
        if (!read_frame(&p.end)) usage(program, "a producer without EndTxn");
        if (p.produce.length < batch_bytes + PRODUCE_TAIL || p.end.length < 8 + END_PRODUCER_ID)
            usage(program, "a request that is too short");
        if (producers_count < room) continue;
        room = room ? 2 * room : 16;
        all = realloc(all, room * sizeof *all);
        if (!all) die("memory");
    }
    if (!producers_count) usage(program, "no producers on standard input");
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"batch", required_argument, NULL, 'b'},
        {"transactions", required_argument, NULL, 'n'},
        {"seconds", required_argument, NULL, 's'},
        {"abort-every", required_argument, NULL, 'a'},
        {"retry-ms", required_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    double seconds = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (option) {
            case 'b': batch_bytes = strtoull(optarg, NULL, 10); break;
            case 'n': to_start = strtoull(optarg, NULL, 10); break;
            case 's': seconds = strtod(optarg, NULL); break;
            case 'a': abort_every = strtoull(optarg, NULL, 10); break;
            case 'r': retry_after_ns = strtoull(optarg, NULL, 10) * 1000000; break;
            default: usage(argv[0], "an unknown option");
        }
    if (argc - optind != 2) usage(argv[0], "HOST and PORT are needed");
    if ((seconds > 0) == (to_start != UINT64_MAX)) usage(argv[0], "either --transactions or --seconds");
    if (batch_bytes < BATCH_HEADER || to_start < 1) usage(argv[0], "a number that is too small");
    make_crc_table();
    read_producers(argv[0]);
    int epoll_fd = epoll_create1(0);
    if (epoll_fd < 0) die("epoll_create1");
    connect_all(argv[optind], argv[optind + 1], epoll_fd);
    uint64_t begin_ns = now_ns();
    if (seconds > 0) end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    for (size_t i = 0; i < producers_count; i++) begin(&all[i]);
    struct epoll_event events[256];
    while (ended < started) {
        int patience_ms = send_again();
        int count = epoll_wait(epoll_fd, events, 256, patience_ms);
        if (count < 0 && errno != EINTR) die("epoll_wait");
        if (count == 0 && patience_ms == PATIENCE_MS) {
            fprintf(stderr, "no answer for %d s after %llu transactions\n", PATIENCE_MS / 1000, (unsigned long long)ended);
            return 1;
        }
        for (int i = 0; i < count; i++) receive(events[i].data.ptr);
    }
    uint64_t took_ns = now_ns() - begin_ns;
    printf("{\"transactions\": %llu, \"aborted\": %llu, \"retries\": %llu, ", (unsigned long long)ended,
           (unsigned long long)aborted, (unsigned long long)retries);
    print_end(took_ns, sent_bytes, received_bytes);
    return 0;
}
