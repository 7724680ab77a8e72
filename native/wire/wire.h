/* What the reader and the writer of the Chakra wire format share. */
#ifndef LAYERDAG_WIRE_H
#define LAYERDAG_WIRE_H

#include <stdint.h>
#include <stddef.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Kept in step with layerdag/traces/chakra/wire.py. */
enum {
    OK = 0,
    CUT_OFF = 1,     /* a message or field reaches past the end */
    LONG_VARINT = 2, /* more than 10 bytes, or a length prefix of more than 5 */
    BAD_FIELD = 3,   /* a field number or wire type that the schema does not have */
    BAD_TYPE = 4,    /* a NodeType beyond CHECKPOINT */
    NO_MEMORY = 5,
    TOO_MANY = 6, /* more distinct strings than an int32 counts */
    BAD_TEXT = 7  /* a string that is not UTF-8 */
};

/* Name of an attribute row that is the message Node.storage (field 11). */
enum { STORAGE_ROW = -2, STORAGE_FIELD = 11, LAST_TYPE = 10 };

/* Kept in step with _COLUMNS in layerdag/traces/chakra/wire.py. */
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

/* Wire type of each AttributeProto alternative, by field number; the even ones are lists. */
static inline int wire_value_kind(uint64_t number) {
    switch (number) {
    case 3:
    case 21:
    case 25: return FIXED64;
    case 5:
    case 19:
    case 23: return FIXED32;
    case 7:
    case 9:
    case 11:
    case 13:
    case 15:
    case 17:
    case 27: return VARINT;
    default: return LENGTH;
    }
}

/* Where and why reading stopped. Kept in step with _Fault in layerdag/traces/chakra/wire.py. */
typedef struct {
    int64_t offset; /* byte in the file at which reading stopped */
    int64_t node;   /* position of the node, from 0 */
    uint64_t id;    /* its id, if it was read before the fault */
    int64_t has_id;
    int64_t detail; /* field number or node type */
} fault_t;

/* Fields that no known schema has, by the message that holds them. */
enum { IN_NODE = 0, IN_ATTRIBUTE = 1, IN_IO = 2, IN_STORAGE = 3, MOST_UNKNOWN = 16,
    MOST_FIELDS = (1 << 29) - 1 /* of protobuf */ };

typedef struct {
    int64_t message, number, count, node;
} unknown_t;

/* What a file holds. Kept in step with _Totals in layerdag/traces/chakra/wire.py. */
typedef struct {
    int64_t nodes, data_deps, ctrl_deps, attributes, kinds_unknown;
    unknown_t unknown[MOST_UNKNOWN];
} totals_t;

/* A pool of distinct byte strings, each a span of the file that is being read. */
typedef struct {
    int64_t offset;
    uint32_t length;
    uint32_t hash;
} span_t;

typedef struct {
    uint32_t *slots; /* 0 = free, else 1 + index into spans */
    uint64_t mask;
    span_t *spans;
    int64_t count, capacity;
    uint64_t seed;
} pool_t;

int wire_pool_add(pool_t *pool, const uint8_t *base, const uint8_t *text, size_t length, int64_t *index);

#endif
