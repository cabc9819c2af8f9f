/*
 * The cost of the job in C on librdkafka, without the checks: split each line, keep six fields, commit in transactions.
 *
 * Two processes, one transactional producer for each source partition, Winnow's settings. Lines with other than 15
 * fields go to the dead letters unchanged. Declares the parts of librdkafka that it uses, so that no header is needed.
 *
 * Usage: split BOOTSTRAP SOURCE SINK DEAD_LETTERS GROUP PARTITIONS
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct rd_kafka_consumer_group_metadata_s rd_kafka_consumer_group_metadata_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    char *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_t; /* its first members */
typedef struct {
    int vtype;
    union {
        void *ptr;
        int32_t i32;
        int64_t i64;
        struct {
            void *ptr;
            size_t size;
        } mem;
        char room[64];
    } u;
} rd_kafka_vu_t;
enum { PRODUCER, CONSUMER };
enum { V_RKT = 2, V_PARTITION = 3, V_VALUE = 4, V_KEY = 5, V_FLAGS = 7, V_TIMESTAMP = 8 };
enum { PARTITION_EOF = -191, QUEUE_FULL = -184, FLAG_COPY = 2 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *, int *);
rd_kafka_error_t *rd_kafka_produceva(rd_kafka_t *, const rd_kafka_vu_t *, size_t);
int rd_kafka_error_code(const rd_kafka_error_t *);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
void rd_kafka_error_destroy(rd_kafka_error_t *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata(rd_kafka_t *);
void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t *);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_send_offsets_to_transaction(rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
                                                       const rd_kafka_consumer_group_metadata_t *, int);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);

#define CHUNK 5000
#define FIELDS 15
#define LARGEST 1000000
#define COMMIT_SECONDS 0.5
static const char SEPARATOR[] = "<<<!>>>,<<<!>>>";

typedef struct {
    rd_kafka_t *client;
    rd_kafka_topic_t *sink, *dead_letters;
    int64_t position;
    int open, ended;
} lane_t;

static void must(rd_kafka_error_t *error) {
    if (!error)
        return;
    fprintf(stderr, "%s\n", rd_kafka_error_string(error));
    exit(1);
}

static rd_kafka_t *client(int kind, const char *bootstrap, const char *settings[][2]) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, why, sizeof why);
    for (int i = 0; settings[i][0]; i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why)) {
            fprintf(stderr, "%s\n", why);
            exit(1);
        }
    return rd_kafka_new(kind, conf, why, sizeof why);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Write the six kept fields of a line. Return their length, or -1 if the line does not have 15 fields. */
static long cleanse(const char *line, size_t size, char *out) {
    const char *begins[FIELDS + 1], *end = line + size;
    size_t lengths[FIELDS + 1];
    while (end > line && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    if (end - line < 14 || memcmp(line, "<<<!>>>", 7) || memcmp(end - 7, "<<<!>>>", 7))
        return -1;
    end -= 7;
    const char *at = line + 7, *from = at;
    int n = 0;
    while (n < FIELDS) {
        /* The separator's eighth byte is its only comma. */
        const char *comma = from < end ? memchr(from, ',', end - from) : NULL;
        if (comma && (comma - at < 7 || end - comma < 8 || memcmp(comma - 7, SEPARATOR, 15))) {
            from = comma + 1;
            continue;
        }
        begins[n] = at;
        lengths[n++] = comma ? comma - 7 - at : end - at;
        if (!comma)
            break;
        at = from = comma + 8;
        if (n == FIELDS)
            return -1;
    }
    if (n != FIELDS)
        return -1;
    static const int wanted[] = {1, 2, 3, 5, 4, 6, 13};
    static const char behind[] = {'|', '|', ':', '|', ':', '|'};
    char *to = out;
    for (int i = 0; i < 7; i++) {
        memcpy(to, begins[wanted[i]], lengths[wanted[i]]);
        to += lengths[wanted[i]];
        if (i < 6)
            *to++ = behind[i];
    }
    return to - out;
}

static void produce(lane_t *lane, rd_kafka_topic_t *topic, int32_t partition, const rd_kafka_message_t *record,
                    void *value, size_t size) {
    rd_kafka_vu_t fields[] = {
        {.vtype = V_RKT, .u.ptr = topic},
        {.vtype = V_PARTITION, .u.i32 = partition},
        {.vtype = V_FLAGS, .u.i32 = FLAG_COPY},
        {.vtype = V_TIMESTAMP, .u.i64 = rd_kafka_message_timestamp(record, NULL)},
        {.vtype = V_VALUE, .u.mem = {value, size}},
        {.vtype = V_KEY, .u.mem = {record->key, record->key_len}},
    };
    rd_kafka_error_t *error;
    while ((error = rd_kafka_produceva(lane->client, fields, 6))) {
        if (rd_kafka_error_code(error) != QUEUE_FULL)
            must(error);
        rd_kafka_error_destroy(error);
        rd_kafka_poll(lane->client, 50);
    }
}

static void commit(rd_kafka_t *consumer, const char *source, lane_t *lanes, int partitions, int first) {
    for (int p = first; p < partitions; p += 2) {
        if (!lanes[p].open)
            continue;
        rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(offsets, source, p)->offset = lanes[p].position;
        rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(consumer);
        must(rd_kafka_send_offsets_to_transaction(lanes[p].client, offsets, group, -1));
        must(rd_kafka_commit_transaction(lanes[p].client, -1));
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_topic_partition_list_destroy(offsets);
        lanes[p].open = 0;
    }
}

static void work(char *bootstrap, char *source, char *sink, char *dead_letters, char *group, int partitions, int first) {
    const char *consuming[][2] = {
        {"group.id", group}, {"enable.auto.commit", "false"}, {"enable.partition.eof", "true"},
        {"isolation.level", "read_committed"}, {"auto.offset.reset", "error"}, {"fetch.queue.backoff.ms", "2"},
        {"fetch.wait.max.ms", "100"}, {"fetch.max.bytes", "4194304"}, {"queued.min.messages", "30000"},
        {"queued.max.messages.kbytes", "32768"}, {NULL, NULL}};
    rd_kafka_t *consumer = client(CONSUMER, bootstrap, consuming);
    lane_t *lanes = calloc(partitions, sizeof *lanes);
    rd_kafka_topic_partition_list_t *assigned = rd_kafka_topic_partition_list_new(partitions);
    int left = 0;
    for (int p = first; p < partitions; p += 2, left++) {
        char id[256];
        snprintf(id, sizeof id, "%s/%s/%d", group, source, p);
        const char *producing[][2] = {
            {"transactional.id", id}, {"compression.type", "lz4"}, {"linger.ms", "20"}, {"batch.size", "1000000"},
            {"queue.buffering.max.messages", "200000"}, {"queue.buffering.max.kbytes", "32768"}, {NULL, NULL}};
        lanes[p].client = client(PRODUCER, bootstrap, producing);
        lanes[p].sink = rd_kafka_topic_new(lanes[p].client, sink, NULL);
        lanes[p].dead_letters = rd_kafka_topic_new(lanes[p].client, dead_letters, NULL);
        must(rd_kafka_init_transactions(lanes[p].client, -1));
        rd_kafka_topic_partition_list_add(assigned, source, p)->offset = 0;
    }
    rd_kafka_assign(consumer, assigned);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
    static rd_kafka_message_t *records[CHUNK];
    static char out[LARGEST];
    double committed = seconds();
    while (left > 0) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 50, records, CHUNK);
        for (ssize_t i = 0; i < count; i++) {
            rd_kafka_message_t *record = records[i];
            lane_t *lane = &lanes[record->partition];
            if (record->err == PARTITION_EOF) {
                left -= !lane->ended;
                lane->ended = 1;
            } else if (!record->err) {
                if (!lane->open)
                    must(rd_kafka_begin_transaction(lane->client));
                lane->open = 1;
                long size = record->payload ? cleanse(record->payload, record->len, out) : -1;
                if (size < 0)
                    produce(lane, lane->dead_letters, 0, record, record->payload, record->len);
                else
                    produce(lane, lane->sink, record->partition, record, out, size);
                lane->position = record->offset + 1;
            }
            rd_kafka_message_destroy(record);
        }
        for (int p = first; p < partitions; p += 2)
            rd_kafka_poll(lanes[p].client, 0);
        if (seconds() - committed > COMMIT_SECONDS || left == 0) {
            commit(consumer, source, lanes, partitions, first);
            committed = seconds();
        }
    }
}

int main(int count, char **words) {
    if (count != 7)
        return 2;
    pid_t other = fork();
    work(words[1], words[2], words[3], words[4], words[5], atoi(words[6]), other == 0);
    int status = 0;
    if (other)
        waitpid(other, &status, 0);
    _exit(status ? 1 : 0);
}
