/* Chakra wire format: scanning and writing of length-prefixed protobuf messages.
 *
 * A file is a sequence of (varint length, message). This part sees the Node messages of schema
 * 0.0.4 = 1.0.0 only; the GlobalMetadata message before them is small and handled in Python.
 *
 * Reading takes two passes over the same bytes: the first one checks everything and counts, so that
 * the caller can allocate exactly; the second one fills the columns. Nothing is allocated from a
 * number found in the file, and no pointer moves past the end of the innermost message.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Kept in step with layerdag/traces/wire.py. */
enum {
    OK = 0,
    CUT_OFF = 1,      /* a message or field reaches past the end */
    LONG_VARINT = 2,  /* more than 10 bytes, or a length prefix of more than 5 */
    BAD_FIELD = 3,    /* a field number or wire type that the schema does not have */
    BAD_TYPE = 4,     /* a NodeType beyond COMM_COLL */
    NO_MEMORY = 5,
    TOO_MANY = 6      /* more distinct strings than an int32 counts */
};

typedef struct {
    int64_t offset;   /* byte in the file at which reading stopped */
    int64_t node;     /* position of the node, from 0 */
    uint64_t id;      /* its id, if it was read before the fault */
    int64_t has_id;
    int64_t detail;   /* field number or node type */
} fault_t;

typedef struct {
    int64_t nodes, data_deps, ctrl_deps, attributes;
} totals_t;

typedef struct {
    uint64_t *id;
    int32_t *name;
    uint8_t *type;
    uint64_t *start_us;
    uint64_t *duration_us;
    int64_t *data_ptr;
    uint64_t *data_deps;
    int64_t *ctrl_ptr;
    uint64_t *ctrl_deps;
    int32_t *io;
    int64_t *attr_ptr;
    int32_t *attr_name;
    uint8_t *attr_wire;
    uint64_t *attr_word;
    int32_t *attr_doc;
} columns_t;

/* ---- pool of distinct byte strings, each a span of the file -------------------------------- */

typedef struct {
    int64_t offset;
    uint32_t length;
    uint32_t hash;
} span_t;

typedef struct {
    uint32_t *slots;  /* 0 = free, else 1 + index into spans */
    uint64_t mask;
    span_t *spans;
    int64_t count, capacity;
    uint64_t seed;
} pool_t;

EXPORT void wire_pool_free(pool_t *pool) {
    if (!pool) return;
    free(pool->slots);
    free(pool->spans);
    free(pool);
}

/* The seed keeps a hostile file from choosing its collisions. */
EXPORT pool_t *wire_pool_new(uint64_t seed) {
    pool_t *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->mask = 255;
    pool->capacity = 128;
    pool->seed = seed;
    pool->slots = calloc(pool->mask + 1, sizeof *pool->slots);
    pool->spans = malloc((size_t)pool->capacity * sizeof *pool->spans);
    if (!pool->slots || !pool->spans) {
        wire_pool_free(pool);
        return NULL;
    }
    return pool;
}

EXPORT int64_t wire_pool_size(const pool_t *pool) { return pool->count; }

EXPORT void wire_pool_spans(const pool_t *pool, int64_t *offset, int64_t *length) {
    for (int64_t i = 0; i < pool->count; i++) {
        offset[i] = pool->spans[i].offset;
        length[i] = pool->spans[i].length;
    }
}

static uint32_t hash_bytes(const uint8_t *text, size_t length, uint64_t seed) {
    uint64_t hash = seed ^ (length * UINT64_C(0x9E3779B97F4A7C15));
    while (length) {
        uint64_t word = 0;
        size_t step = length < 8 ? length : 8;
        memcpy(&word, text, step);
        hash = (hash ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
        text += step;
        length -= step;
    }
    hash *= UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(hash >> 32);
}

static int pool_grow(pool_t *pool) {
    int64_t capacity = pool->capacity * 2;
    uint64_t mask = pool->mask * 2 + 1;
    span_t *spans = realloc(pool->spans, (size_t)capacity * sizeof *spans);
    if (!spans) return NO_MEMORY;
    pool->spans = spans;
    uint32_t *slots = calloc(mask + 1, sizeof *slots);
    if (!slots) return NO_MEMORY;
    for (int64_t i = 0; i < pool->count; i++) {
        uint64_t slot = spans[i].hash & mask;
        while (slots[slot]) slot = (slot + 1) & mask;
        slots[slot] = (uint32_t)i + 1;
    }
    free(pool->slots);
    pool->slots = slots;
    pool->mask = mask;
    pool->capacity = capacity;
    return OK;
}

static int pool_add(pool_t *pool, const uint8_t *base, const uint8_t *text, size_t length,
                    int64_t *index) {
    uint32_t hash = hash_bytes(text, length, pool->seed);
    uint64_t slot = hash & pool->mask;
    for (; pool->slots[slot]; slot = (slot + 1) & pool->mask) {
        const span_t *span = &pool->spans[pool->slots[slot] - 1];
        if (span->hash == hash && span->length == length &&
            memcmp(base + span->offset, text, length) == 0) {
            *index = pool->slots[slot] - 1;
            return OK;
        }
    }
    if (pool->count >= INT32_MAX) return TOO_MANY;
    if (pool->count == pool->capacity) {
        int status = pool_grow(pool);
        if (status) return status;
        for (slot = hash & pool->mask; pool->slots[slot]; slot = (slot + 1) & pool->mask) {}
    }
    pool->spans[pool->count] = (span_t){text - base, (uint32_t)length, hash};
    pool->slots[slot] = (uint32_t)++pool->count;
    *index = pool->count - 1;
    return OK;
}

/* ---- primitives --------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at, *end;
} cursor_t;

static int read_varint(cursor_t *in, uint64_t *value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (in->at >= in->end) return CUT_OFF;
        uint8_t byte = *in->at++;
        result |= (uint64_t)(byte & 0x7F) << shift; /* shift 63: higher bits fall off, as defined */
        if (byte < 0x80) {
            *value = result;
            return OK;
        }
    }
    return LONG_VARINT;
}

static int read_fixed(cursor_t *in, int bytes, uint64_t *value) {
    if (in->end - in->at < bytes) return CUT_OFF;
    *value = 0;
    for (int i = 0; i < bytes; i++) *value |= (uint64_t)in->at[i] << (8 * i);
    in->at += bytes;
    return OK;
}

static int read_span(cursor_t *in, cursor_t *inner) {
    uint64_t length;
    int status = read_varint(in, &length);
    if (status) return status;
    if (length > (uint64_t)(in->end - in->at) || length > INT32_MAX) return CUT_OFF;
    inner->at = in->at;
    inner->end = in->at += length;
    return OK;
}

static int read_tag(cursor_t *in, uint64_t *number, int *kind) {
    uint64_t word;
    int status = read_varint(in, &word);
    *number = word >> 3;
    *kind = (int)(word & 7);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *base;
    totals_t n;
    const columns_t *out; /* NULL while counting */
    pool_t *strings, *blobs;
    fault_t *fault;
} sink_t;

static int bad_field(sink_t *sink, uint64_t number) {
    sink->fault->detail = (int64_t)number;
    return BAD_FIELD;
}

static int put_text(sink_t *sink, cursor_t *in, pool_t *pool, int64_t *index) {
    cursor_t text;
    int status = read_span(in, &text);
    if (status || !sink->out) return status;
    return pool_add(pool, sink->base, text.at, (size_t)(text.end - text.at), index);
}

static int scan_dep(cursor_t *in, int64_t *count, uint64_t *column) {
    uint64_t id;
    int status = read_varint(in, &id);
    if (status) return status;
    if (column) column[*count] = id;
    ++*count;
    return OK;
}

static int scan_deps(cursor_t *in, int kind, int64_t *count, uint64_t *column) {
    if (kind == VARINT) return scan_dep(in, count, column);
    cursor_t packed;
    int status = read_span(in, &packed);
    while (!status && packed.at < packed.end) status = scan_dep(&packed, count, column);
    return status;
}

static int scan_io(sink_t *sink, cursor_t *in, int32_t *columns) {
    cursor_t message;
    int status = read_span(in, &message);
    /* An empty message that is present is kept apart from an absent one by an empty string. */
    if (!status && sink->out && message.at == message.end && columns[0] < 0) {
        int64_t index;
        status = pool_add(sink->strings, sink->base, message.at, 0, &index);
        if (!status) columns[0] = (int32_t)index;
    }
    while (!status && message.at < message.end) {
        uint64_t number;
        int kind;
        int64_t index = -1;
        if ((status = read_tag(&message, &number, &kind))) break;
        if (number < 1 || number > 3 || kind != LENGTH) return bad_field(sink, number);
        status = put_text(sink, &message, sink->strings, &index);
        if (!status && sink->out) columns[number - 1] = (int32_t)index;
    }
    return status;
}

/* Wire type of each AttributeProto alternative, by field number; the even ones are lists. */
static int value_kind(uint64_t number) {
    switch (number) {
    case 3: case 21: case 25: return FIXED64;
    case 5: case 19: case 23: return FIXED32;
    case 7: case 9: case 11: case 13: case 15: case 17: case 27: return VARINT;
    default: return LENGTH;
    }
}

static uint64_t to_word(uint64_t number, uint64_t raw) {
    switch (number) {
    case 7: case 23: return (uint64_t)(int64_t)(int32_t)(uint32_t)raw;
    case 11: return (uint32_t)raw;
    case 15: case 17: {
        if (number == 15) raw = (uint32_t)raw;
        return (raw >> 1) ^ (0 - (raw & 1));
    }
    case 27: return raw != 0;
    default: return raw;
    }
}

static int scan_value(sink_t *sink, cursor_t *in, uint64_t number, int kind, uint64_t *word) {
    if (number < 3 || number > 32 || kind != value_kind(number)) return bad_field(sink, number);
    uint64_t raw = 0;
    int status;
    if (kind == VARINT) {
        status = read_varint(in, &raw);
    } else if (kind == LENGTH) {
        int64_t index = 0;
        status = put_text(sink, in, number == 29 ? sink->strings : sink->blobs, &index);
        *word = (uint64_t)index;
        return status;
    } else {
        status = read_fixed(in, kind == FIXED64 ? 8 : 4, &raw);
    }
    *word = to_word(number, raw);
    return status;
}

static int scan_attribute(sink_t *sink, cursor_t *in) {
    cursor_t message;
    int status = read_span(in, &message);
    int64_t name = -1, doc = -1;
    uint64_t wire = 0, word = 0;
    while (!status && message.at < message.end) {
        uint64_t number;
        int kind;
        if ((status = read_tag(&message, &number, &kind))) break;
        if (number <= 2 && kind == LENGTH && number > 0) {
            status = put_text(sink, &message, sink->strings, number == 1 ? &name : &doc);
        } else {
            status = scan_value(sink, &message, number, kind, &word);
            wire = number;
        }
    }
    if (!status && sink->out) {
        int64_t row = sink->n.attributes;
        sink->out->attr_name[row] = (int32_t)name;
        sink->out->attr_doc[row] = (int32_t)doc;
        sink->out->attr_wire[row] = (uint8_t)wire;
        sink->out->attr_word[row] = word;
    }
    sink->n.attributes++;
    return status;
}

static int scan_number(sink_t *sink, cursor_t *in, uint64_t number) {
    uint64_t value;
    int64_t row = sink->n.nodes;
    int status = read_varint(in, &value);
    if (status) return status;
    if (number == 1) {
        sink->fault->id = value;
        sink->fault->has_id = 1;
    }
    if (number == 3 && value > 7) {
        sink->fault->detail = (int64_t)value;
        return BAD_TYPE;
    }
    if (!sink->out) return OK;
    switch (number) {
    case 1: sink->out->id[row] = value; break;
    case 3: sink->out->type[row] = (uint8_t)value; break;
    case 6: sink->out->start_us[row] = value; break;
    default: sink->out->duration_us[row] = value; break;
    }
    return OK;
}

static int scan_field(sink_t *sink, cursor_t *in, uint64_t number, int kind) {
    const columns_t *out = sink->out;
    int64_t row = sink->n.nodes;
    if (kind == VARINT && (number == 1 || number == 3 || number == 6 || number == 7))
        return scan_number(sink, in, number);
    if ((kind == VARINT || kind == LENGTH) && number == 4)
        return scan_deps(in, kind, &sink->n.ctrl_deps, out ? out->ctrl_deps : NULL);
    if ((kind == VARINT || kind == LENGTH) && number == 5)
        return scan_deps(in, kind, &sink->n.data_deps, out ? out->data_deps : NULL);
    if (kind == LENGTH && number == 2) {
        int64_t index = -1;
        int status = put_text(sink, in, sink->strings, &index);
        if (!status && out) out->name[row] = (int32_t)index;
        return status;
    }
    if (kind == LENGTH && (number == 8 || number == 9))
        return scan_io(sink, in, out ? out->io + 6 * row + 3 * (number - 8) : NULL);
    if (kind == LENGTH && number == 10) return scan_attribute(sink, in);
    return bad_field(sink, number);
}

static void begin_node(sink_t *sink) {
    int64_t row = sink->n.nodes;
    const columns_t *out = sink->out;
    sink->fault->node = row;
    sink->fault->has_id = 0;
    if (!out) return;
    out->id[row] = out->start_us[row] = out->duration_us[row] = 0;
    out->name[row] = -1;
    out->type[row] = 0;
    for (int i = 0; i < 6; i++) out->io[6 * row + i] = -1;
}

static void end_node(sink_t *sink) {
    int64_t next = ++sink->n.nodes;
    if (!sink->out) return;
    sink->out->data_ptr[next] = sink->n.data_deps;
    sink->out->ctrl_ptr[next] = sink->n.ctrl_deps;
    sink->out->attr_ptr[next] = sink->n.attributes;
}

static int scan_frame(cursor_t *file, cursor_t *node) {
    const uint8_t *begin = file->at;
    uint64_t length;
    int status = read_varint(file, &length);
    if (status) return status;
    if (file->at - begin > 5) return LONG_VARINT;
    if (length > (uint64_t)(file->end - file->at)) return CUT_OFF;
    node->at = file->at;
    node->end = file->at += length;
    return OK;
}

static int scan(sink_t *sink, int64_t start, int64_t size) {
    cursor_t file = {sink->base + start, sink->base + size};
    while (file.at < file.end) {
        cursor_t node = file;
        begin_node(sink);
        sink->fault->offset = file.at - sink->base;
        int status = scan_frame(&file, &node);
        while (!status && node.at < node.end) {
            uint64_t number;
            int kind;
            sink->fault->offset = node.at - sink->base;
            status = read_tag(&node, &number, &kind);
            if (!status) status = scan_field(sink, &node, number, kind);
        }
        if (status) return status;
        end_node(sink);
    }
    return OK;
}

/* Check the nodes in data[start:size] and count what they hold. */
EXPORT int32_t wire_count(const uint8_t *data, int64_t start, int64_t size, totals_t *totals,
                          fault_t *fault) {
    sink_t sink = {data, {0, 0, 0, 0}, NULL, NULL, NULL, fault};
    int status = scan(&sink, start, size);
    *totals = sink.n;
    return status;
}

/* Fill columns that are as long as wire_count said for the same bytes. */
EXPORT int32_t wire_read(const uint8_t *data, int64_t start, int64_t size, const columns_t *out,
                         pool_t *strings, pool_t *blobs, fault_t *fault) {
    sink_t sink = {data, {0, 0, 0, 0}, out, strings, blobs, fault};
    out->data_ptr[0] = out->ctrl_ptr[0] = out->attr_ptr[0] = 0;
    return scan(&sink, start, size);
}

/* ---- writing ------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *bytes;
    const int64_t *ptr; /* text i is bytes[ptr[i]:ptr[i+1]] */
} texts_t;

static int64_t varint_size(uint64_t value) {
    int64_t size = 1;
    while (value > 0x7F) {
        value >>= 7;
        size++;
    }
    return size;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value > 0x7F) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static int64_t text_length(const texts_t *texts, int64_t index) {
    return index < 0 ? 0 : texts->ptr[index + 1] - texts->ptr[index];
}

/* Every field number up to 15 has a tag of one byte; only attribute values go beyond. */
static int64_t tag_size(int number) { return number < 16 ? 1 : 2; }

static uint8_t *put_tag(uint8_t *at, int number, int kind) {
    return put_varint(at, (uint64_t)number << 3 | (uint64_t)kind);
}

static int64_t span_size(int number, int64_t length) {
    return tag_size(number) + varint_size((uint64_t)length) + length;
}

static uint8_t *put_span(uint8_t *at, int number, const texts_t *texts, int64_t index) {
    int64_t length = text_length(texts, index);
    at = put_tag(at, number, LENGTH);
    at = put_varint(at, (uint64_t)length);
    memcpy(at, texts->bytes + texts->ptr[index], (size_t)length);
    return at + length;
}

/* Proto3 leaves out an empty string. */
static int64_t text_size(int number, const texts_t *texts, int64_t index) {
    int64_t length = text_length(texts, index);
    return length ? span_size(number, length) : 0;
}

static uint8_t *put_text_field(uint8_t *at, int number, const texts_t *texts, int64_t index) {
    return text_length(texts, index) ? put_span(at, number, texts, index) : at;
}

static uint64_t from_word(int number, uint64_t word) {
    if (number == 15 || number == 17) return (word << 1) ^ (0 - (word >> 63));
    return word;
}

static int64_t value_size(int number, uint64_t word, const texts_t *strings, const texts_t *blobs) {
    if (number == 0) return 0;
    int kind = value_kind((uint64_t)number);
    if (kind == FIXED64) return tag_size(number) + 8;
    if (kind == FIXED32) return tag_size(number) + 4;
    if (kind == VARINT) return tag_size(number) + varint_size(from_word(number, word));
    return span_size(number, text_length(number == 29 ? strings : blobs, (int64_t)word));
}

static uint8_t *put_value(uint8_t *at, int number, uint64_t word, const texts_t *strings,
                          const texts_t *blobs) {
    if (number == 0) return at;
    int kind = value_kind((uint64_t)number);
    if (kind == LENGTH) return put_span(at, number, number == 29 ? strings : blobs, (int64_t)word);
    at = put_tag(at, number, kind);
    if (kind == VARINT) return put_varint(at, from_word(number, word));
    int bytes = kind == FIXED64 ? 8 : 4;
    for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(word >> (8 * i));
    return at;
}

typedef struct {
    const columns_t *in;
    const texts_t *strings, *blobs;
} source_t;

static int64_t attribute_size(const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    return text_size(1, from->strings, in->attr_name[row]) +
           text_size(2, from->strings, in->attr_doc[row]) +
           value_size(in->attr_wire[row], in->attr_word[row], from->strings, from->blobs);
}

static int64_t packed_size(const uint64_t *ids, int64_t begin, int64_t end) {
    int64_t size = 0;
    for (int64_t i = begin; i < end; i++) size += varint_size(ids[i]);
    return size;
}

static uint8_t *put_packed(uint8_t *at, int number, const uint64_t *ids, int64_t begin,
                           int64_t end) {
    if (begin == end) return at;
    at = put_tag(at, number, LENGTH);
    at = put_varint(at, (uint64_t)packed_size(ids, begin, end));
    for (int64_t i = begin; i < end; i++) at = put_varint(at, ids[i]);
    return at;
}

static int64_t io_size(const source_t *from, const int32_t *io) {
    int64_t size = 0;
    for (int i = 0; i < 3; i++) size += text_size(i + 1, from->strings, io[i]);
    return size;
}

static int io_present(const int32_t *io) { return io[0] >= 0 || io[1] >= 0 || io[2] >= 0; }

static int64_t node_size(const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    int64_t size = text_size(2, from->strings, in->name[row]);
    int64_t data = packed_size(in->data_deps, in->data_ptr[row], in->data_ptr[row + 1]);
    int64_t ctrl = packed_size(in->ctrl_deps, in->ctrl_ptr[row], in->ctrl_ptr[row + 1]);
    if (in->id[row]) size += 1 + varint_size(in->id[row]);
    if (in->type[row]) size += 2;
    if (ctrl) size += span_size(4, ctrl);
    if (data) size += span_size(5, data);
    if (in->start_us[row]) size += 1 + varint_size(in->start_us[row]);
    if (in->duration_us[row]) size += 1 + varint_size(in->duration_us[row]);
    for (int half = 0; half < 2; half++) {
        const int32_t *io = in->io + 6 * row + 3 * half;
        if (io_present(io)) size += span_size(8, io_size(from, io));
    }
    for (int64_t i = in->attr_ptr[row]; i < in->attr_ptr[row + 1]; i++)
        size += span_size(10, attribute_size(from, i));
    return size ? size : 2; /* an empty Node would end the file for Python tools: write id 0 */
}

static uint8_t *put_number(uint8_t *at, int number, uint64_t value) {
    if (!value) return at;
    return put_varint(put_tag(at, number, VARINT), value);
}

static uint8_t *put_attribute(uint8_t *at, const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    at = put_tag(at, 10, LENGTH);
    at = put_varint(at, (uint64_t)attribute_size(from, row));
    at = put_text_field(at, 1, from->strings, in->attr_name[row]);
    at = put_text_field(at, 2, from->strings, in->attr_doc[row]);
    return put_value(at, in->attr_wire[row], in->attr_word[row], from->strings, from->blobs);
}

static uint8_t *put_node(uint8_t *at, const source_t *from, int64_t row) {
    const columns_t *in = from->in;
    uint8_t *begin = at;
    at = put_number(at, 1, in->id[row]);
    at = put_text_field(at, 2, from->strings, in->name[row]);
    at = put_number(at, 3, in->type[row]);
    at = put_packed(at, 4, in->ctrl_deps, in->ctrl_ptr[row], in->ctrl_ptr[row + 1]);
    at = put_packed(at, 5, in->data_deps, in->data_ptr[row], in->data_ptr[row + 1]);
    at = put_number(at, 6, in->start_us[row]);
    at = put_number(at, 7, in->duration_us[row]);
    for (int half = 0; half < 2; half++) {
        const int32_t *io = in->io + 6 * row + 3 * half;
        if (!io_present(io)) continue;
        at = put_tag(at, 8 + half, LENGTH);
        at = put_varint(at, (uint64_t)io_size(from, io));
        for (int i = 0; i < 3; i++) at = put_text_field(at, i + 1, from->strings, io[i]);
    }
    for (int64_t i = in->attr_ptr[row]; i < in->attr_ptr[row + 1]; i++)
        at = put_attribute(at, from, i);
    if (at == begin) {
        *at++ = 1 << 3;
        *at++ = 0;
    }
    return at;
}

/* Bytes that wire_write needs for all nodes, or -1 - row of a node beyond protobuf's 2 GiB. */
EXPORT int64_t wire_measure(int64_t nodes, const columns_t *in, const texts_t *strings,
                            const texts_t *blobs) {
    source_t from = {in, strings, blobs};
    int64_t total = 0;
    for (int64_t row = 0; row < nodes; row++) {
        int64_t size = node_size(&from, row);
        if (size > INT32_MAX) return -1 - row;
        total += varint_size((uint64_t)size) + size;
    }
    return total;
}

/* Write all nodes to `out`, which holds wire_measure bytes; return the number written. */
EXPORT int64_t wire_write(int64_t nodes, const columns_t *in, const texts_t *strings,
                          const texts_t *blobs, uint8_t *out) {
    source_t from = {in, strings, blobs};
    uint8_t *at = out;
    for (int64_t row = 0; row < nodes; row++) {
        at = put_varint(at, (uint64_t)node_size(&from, row));
        at = put_node(at, &from, row);
    }
    return at - out;
}
